"""The function app: binds triggers and nothing else. Importing it needs no setting."""

from __future__ import annotations

import os

import azure.functions as func

from shared.adapters.trigger import envelope_of, request_of, response_of
from shared.bootstrap import answer, handle, services
from shared.bootstrap import health as health_answer
from shared.envelope import Role

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)

# By hand: the library's own list can be asked for only once, and the host has done so.
FUNCTIONS = ("process_order", "fan_out_ledger", "apply_entry", "sweep", "submit_order", "get_order", "health")


@app.function_name("process_order")
@app.service_bus_queue_trigger(
    arg_name="message",
    queue_name="%ORDERS_QUEUE%",
    connection="ServiceBusConnection",
    is_sessions_enabled=True,
    data_type=func.DataType.BINARY,  # with text, a JSON body would overwrite the broker's metadata
    cardinality=func.Cardinality.ONE,
)
async def process_order(message: func.ServiceBusMessage, context: func.Context) -> None:
    """Handle one order message. Returning completes it; raising abandons it."""
    await handle(Role.ORDERS, lambda: envelope_of(Role.ORDERS, message, context))


@app.function_name("fan_out_ledger")
@app.service_bus_queue_trigger(
    arg_name="message",
    queue_name="%LEDGER_QUEUE%",
    connection="ServiceBusConnection",
    is_sessions_enabled=True,
    data_type=func.DataType.BINARY,
    cardinality=func.Cardinality.ONE,
)
async def fan_out_ledger(message: func.ServiceBusMessage, context: func.Context) -> None:
    """Send each transaction of a ledger batch to its order's session, in order."""
    await handle(Role.LEDGER, lambda: envelope_of(Role.LEDGER, message, context))


@app.function_name("apply_entry")
@app.service_bus_queue_trigger(
    arg_name="message",
    queue_name="%LEDGER_ENTRIES_QUEUE%",
    connection="ServiceBusConnection",
    is_sessions_enabled=True,
    data_type=func.DataType.BINARY,
    cardinality=func.Cardinality.ONE,
)
async def apply_entry(message: func.ServiceBusMessage, context: func.Context) -> None:
    """Apply one entry to its order's ledger."""
    await handle(Role.LEDGER_ENTRIES, lambda: envelope_of(Role.LEDGER_ENTRIES, message, context))


@app.function_name("sweep")
@app.timer_trigger(arg_name="timer", schedule="%SWEEP_SCHEDULE%", run_on_startup=False, use_monitor=False)
async def sweep(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the host binds it by name
    """Resume what is unfinished after a grace period; report gaps."""
    await services().sweep()


@app.function_name("submit_order")
@app.route(route="orders", methods=["POST"])
async def submit_order(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    """Put an order message on its queue."""
    return response_of(await answer(lambda own: own.orders.submit(request_of(req, context))))


@app.function_name("get_order")
@app.route(route="orders/{*orderId}", methods=["GET"])  # catch-all: an id may hold a slash
async def get_order(req: func.HttpRequest, context: func.Context) -> func.HttpResponse:
    """An order as it is now."""
    return response_of(
        await answer(lambda own: own.orders.get(request_of(req, context), req.route_params.get("orderId", "")))
    )


@app.function_name("health")
@app.route(route="health", methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
async def health(req: func.HttpRequest) -> func.HttpResponse:  # noqa: ARG001 - the host binds it by name
    """Whether the app can read its settings."""
    return response_of(health_answer(os.environ, FUNCTIONS))
