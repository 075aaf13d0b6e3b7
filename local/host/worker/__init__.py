"""The worker process: indexes function_app.py and runs its functions, as the platform's Python worker does.

`python -m local.host.worker` is started by `local.host.pool`, which writes one JSON line to its standard input: port
and secret of the host's channel, the project's folder, and a port for the debugger. As in the platform's worker, the
project's folder comes last in sys.path, asynchronous functions share one event loop, synchronous ones a thread pool,
and only an `Exception` is answered: a CancelledError that escapes is never answered, a SystemExit ends the process.
"""
