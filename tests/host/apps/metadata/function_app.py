"""The same trigger twice, with data type BINARY and without: what each sees of a message is told in the log."""

import logging

import azure.functions as func

app = func.FunctionApp()
NAMES = (
    "message_id",
    "session_id",
    "delivery_count",
    "lock_token",
    "correlation_id",
    "subject",
    "label",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
    "partition_key",
    "sequence_number",
    "application_properties",
    "user_properties",
    "enqueued_time_utc",
    "expires_at_utc",
    "locked_until",
    "time_to_live",
    "dead_letter_reason",
    "state",
    "scheduled_enqueue_time_utc",
    "enqueued_sequence_number",
)


def tell(message: func.ServiceBusMessage) -> None:
    seen = {name: getattr(message, name) for name in NAMES}
    logging.info("seen", extra={"seen": seen, "body": message.get_body().hex(), "names": sorted(message.metadata)})


@app.function_name("binary")
@app.service_bus_queue_trigger(
    arg_name="message", queue_name="binary", connection="Bus", is_sessions_enabled=True, data_type=func.DataType.BINARY
)
async def binary(message: func.ServiceBusMessage) -> None:
    """Immune."""
    tell(message)


@app.function_name("text")
@app.service_bus_queue_trigger(arg_name="message", queue_name="text", connection="Bus", is_sessions_enabled=True)
async def text(message: func.ServiceBusMessage) -> None:
    """As most samples write it."""
    tell(message)
