"""Timers."""

import asyncio
import logging
import os

import azure.functions as func

app = func.FunctionApp()


@app.timer_trigger(arg_name="timer", schedule="%TICK%", run_on_startup=os.environ.get("RUN_ON_STARTUP") == "1")
async def tick(timer: func.TimerRequest) -> None:
    """Tell that it runs, for a while."""
    logging.info("tick", extra={"past_due": timer.past_due, "status": timer.schedule_status, "pid": os.getpid()})
    await asyncio.sleep(float(os.environ.get("TICK_SECONDS", "0")))
    logging.info("tock")
