"""What a message's body says is what the function does with it: one app for the rules of settlement."""

import asyncio
import logging
import os
import sys
import time

import azure.functions as func

app = func.FunctionApp()
DELIVERY = {}


def tell(message: func.ServiceBusMessage, event: str, **fields: object) -> None:
    """Tell the test through a log record."""
    logging.info(
        event,
        extra={
            "session": message.session_id,
            "message_id": message.message_id,
            "delivery": message.delivery_count,
            "pid": os.getpid(),
            **fields,
        },
    )


@app.function_name("work")
@app.service_bus_queue_trigger(
    arg_name="message",
    queue_name="%ORDERS_QUEUE%",
    connection="Bus",
    is_sessions_enabled=True,
    data_type=func.DataType.BINARY,
)
async def work(message: func.ServiceBusMessage, context: func.Context) -> str | None:
    """Obey the body."""
    order, _, rest = message.get_body().decode().partition(" ")
    tell(message, "start", order=order)
    first = message.delivery_count == 1
    match order:
        case "fail-once" if first:
            raise RuntimeError("no luck")
        case "fail":
            raise RuntimeError("never")
        case "return":
            return "a value"
        case "cancelled" if first:
            raise asyncio.CancelledError
        case "exit" if first:
            sys.exit(3)
        case "kill" if first:
            os._exit(9)
        case "sleep":
            await asyncio.sleep(float(rest))
        case "sleep-once" if first:
            await asyncio.sleep(float(rest))
        case "trace":
            tell(message, "trace", parent=context.trace_context.Traceparent, state=context.trace_context.Tracestate)
        case "context":
            tell(
                message,
                "context",
                function=context.function_name,
                directory=context.function_directory,
                invocation=context.invocation_id,
            )
        case "block":
            time.sleep(float(rest))  # noqa: ASYNC251  # what a test is about
    tell(message, "end", order=order)
    return None
