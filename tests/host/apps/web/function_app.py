"""HTTP functions of every kind."""
# ruff: noqa: ARG001  # the trigger's parameter has to be there

import json

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)


@app.route(route="echo", methods=["POST"], auth_level=func.AuthLevel.ANONYMOUS)
async def echo(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    """Tell what came."""
    content = {
        "method": req.method,
        "url": req.url,
        "params": dict(req.params),
        "body": req.get_body().hex(),
        "headers": dict(req.headers),
        "trace": context.trace_context.Traceparent,
    }
    response = func.HttpResponse(json.dumps(content), status_code=201, mimetype="application/json")
    response.headers.add("X-One", "1")
    response.headers.add("Set-Cookie", "a=1; Path=/")
    response.headers.add("Set-Cookie", "b=2; HttpOnly")
    return response


@app.route(route="orders/{*orderId}", methods=["GET"])
async def get_order(req: func.HttpRequest) -> func.HttpResponse:
    """Catch-all, with a key."""
    return func.HttpResponse(req.route_params["orderId"])


@app.route(route="orders/special", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
def special(req: func.HttpRequest) -> str:
    """A literal route wins over a parameter; a str is a response."""
    return "special"


@app.route(route="items/{item}/{size?}", auth_level=func.AuthLevel.ANONYMOUS)
def items(req: func.HttpRequest) -> func.HttpResponse:
    """Parameters, any method."""
    return func.HttpResponse(json.dumps(dict(req.route_params)))


@app.route(route="admin-only", auth_level=func.AuthLevel.ADMIN)
def admin_only(req: func.HttpRequest) -> func.HttpResponse:
    """The master key's."""
    return func.HttpResponse(status_code=204)


@app.route(route="fails", auth_level=func.AuthLevel.ANONYMOUS)
def fails(req: func.HttpRequest) -> func.HttpResponse:
    """No answer but an exception."""
    raise RuntimeError("no luck")


@app.route(route="nothing", auth_level=func.AuthLevel.ANONYMOUS)
def nothing(req: func.HttpRequest) -> func.HttpResponse:
    """Forgets to answer."""


@app.route(auth_level=func.AuthLevel.ANONYMOUS)
async def unrouted(req: func.HttpRequest) -> func.HttpResponse:
    """Its name is its route."""
    return func.HttpResponse(b"\x00\xff", mimetype="application/octet-stream")
