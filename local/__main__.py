"""`python -m local`: broker and Cosmos DB on this machine, with `--app` the function app too, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import quote

from local import runfile
from local.config_errors import ConfigError
from local.cosmos.feed import CONSISTENCY_LEVELS
from local.cosmos.store import StoreError
from local.host.control import ControlServer
from local.host.errors import HostError
from local.host.events import HostEvent
from local.host.lines import line_of, stamped
from local.host.watch import stamps, watch
from local.interrupt import INTERRUPTED, on_signals
from local.json_file import read_object
from local.stack import HERE, PortError, Ports, Stack, check_ports

OK: Final = 0
STOPPING: Final = "stopping: finishing what is in hand; a second Ctrl-C leaves at once"
EXAMPLES: Final = Path("docs", "examples")  # of a project: a body by the name of the function that takes it
USAGE: Final = 2
ENVIRONMENT: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stack; gives the exit code."""
    options = _options(sys.argv[1:] if arguments is None else arguments)
    try:
        return asyncio.run(_run(options))
    except (ConfigError, HostError) as exc:
        _say(f"error: {exc}", sys.stderr)
        return USAGE
    except (PortError, StoreError, OSError) as exc:
        _say(f"error: {exc}", sys.stderr)
        return ENVIRONMENT
    except KeyboardInterrupt:  # Ctrl-C before or behind the time in which the signal is handled
        return INTERRUPTED


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    usual = Ports()
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--app", action="store_true", help="run the function app too")
    add("--config", type=Path, metavar="FILE", help="queues, in the official emulator's format (local/Config.json)")
    add("--faults", type=Path, metavar="FILE", help="faults to start with (docs/faults.md)")
    add("--data", type=Path, metavar="FILE", help="keep the database in this file (default: in memory)")
    levels = f"of the account (Strong): {', '.join(CONSISTENCY_LEVELS)}"
    add("--consistency", choices=CONSISTENCY_LEVELS, default="Strong", metavar="LEVEL", help=levels)
    for name, what in (("amqp", "AMQP"), ("admin", "administration and health"), ("cosmos", "Cosmos DB")):
        port = getattr(usual, name)
        add(f"--{name}-port", type=_port, default=port, metavar="N", help=f"{what} ({port}; 0: a free one)")
    add("--control-port", type=_port, default=usual.control, metavar="N", help=f"control endpoint ({usual.control})")
    add("--http-port", type=_port, default=usual.http, metavar="N", help=f"with --app: HTTP functions ({usual.http})")
    add("--health", type=_path, metavar="PATH", help="with --app: ask this once, and end with 2 if it is not well")
    add("--no-reload", action="store_true", help="with --app: don't load the app anew when a source changes")
    add("--debug", action="store_true", help="with --app: wait for a debugger on port 9091")
    options = parser.parse_args(arguments)
    for flag in ("no_reload", "debug", "health"):
        if getattr(options, flag) and not options.app:
            parser.error(f"--{flag.replace('_', '-')} needs --app")
    return options


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with a slash")
    return text


async def _run(options: argparse.Namespace) -> int:
    stopping: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stop(name: str) -> None:
        code = INTERRUPTED if name == "SIGINT" else OK
        if stopping.done():  # asked twice: no more waiting; workers end with this process
            os._exit(code)
        stopping.set_result(code)

    with on_signals(stop):
        return await _serve(options, stopping)


async def _serve(options: argparse.Namespace, stopping: asyncio.Future[int]) -> int:
    project = Path.cwd() if (Path.cwd() / "host.json").is_file() else HERE.parent
    ports = Ports(options.amqp_port, options.admin_port, options.cosmos_port, options.http_port, options.control_port)
    check_ports(ports, without=() if options.app else ("http",))
    token = secrets.token_urlsafe(32)
    sources = stamps(project) if options.app and not options.no_reload else None
    stack = Stack(
        project,
        app=options.app,
        ports=ports,
        config=options.config,
        data=options.data,
        faults=options.faults,
        consistency=options.consistency,
        debug=options.debug,
        health=None if options.debug else options.health,  # the debugger may hold it for long
        observers=[_print_event],
    )
    async with contextlib.AsyncExitStack() as closing:
        entered = asyncio.ensure_future(closing.enter_async_context(stack))
        either: list[asyncio.Future[Any]] = [entered, stopping]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():  # told to stop while it was still starting
            _say(STOPPING)
            entered.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await entered
            return stopping.result()
        entered.result()
        control = ControlServer(token, lambda: stack.host, stack.faults)
        await control.start(ports.control)
        closing.push_async_callback(control.stop)
        await _publish(stack, control, token, closing)
        if sources is not None:
            watching = asyncio.create_task(watch(project, sources, lambda names: _reload(stack, names)))
            closing.callback(watching.cancel)
        code = await stopping
        _say(STOPPING)
    return code


async def _publish(stack: Stack, control: ControlServer, token: str, closing: contextlib.AsyncExitStack) -> None:
    """Write .stack.json and say where everything is."""
    content = {
        "pid": os.getpid(),
        "startedAt": time.time(),
        "serviceBusConnection": stack.service_bus_connection,
        "adminUrl": stack.admin_url,
        "cosmosConnection": stack.cosmos_connection,
        "functionsUrl": stack.http_url,
        "functionKey": None if stack.host is None else stack.host.keys.function,
        "controlUrl": f"http://127.0.0.1:{control.port}",
        "controlToken": token,
    }
    told = f"in {runfile.NAME}"
    if await asyncio.to_thread(runfile.write, stack.project, content):
        closing.callback(runfile.remove, stack.project, token)
    else:
        _say(f"{runfile.NAME} belongs to another stack that is running; it is left alone")
        told = token
    _say(f"Service Bus      {stack.service_bus_connection}")
    _say(f"Administration   {stack.admin_url}")
    _say(f"Cosmos DB        {stack.cosmos_connection}")
    _say(f"Control          http://127.0.0.1:{control.port} (token {told})")
    if stack.host is not None:
        _say(f"Functions        {stack.http_url}")
        _say("Try:")
        for line in _examples(stack):
            _say(f"  {line}")
    _say("ready")


def _examples(stack: Stack) -> list[str]:
    """A curl line for each HTTP function; with an example's body, and its members in the path, where there is one."""
    host = stack.host
    assert host is not None  # noqa: S101  # called with the app only
    members: dict[str, object] = {}
    bodies = set[str]()
    for function in host.http_functions:
        example = stack.project / EXAMPLES / f"{function.name}.json"
        if not example.exists():
            continue
        try:
            members |= read_object(example)
        except ConfigError as exc:  # no reason to stop a stack that serves
            _say(f"  ({EXAMPLES.as_posix()}/{exc})")
            continue
        bodies.add(function.name)
    lines = []
    for function in host.http_functions:
        method = "GET" if not function.methods or "GET" in function.methods else sorted(function.methods)[0]
        header = f" -H 'x-functions-key: {host.keys.for_level(function.auth_level)}'"
        key = "" if function.auth_level == "anonymous" else header
        file = (EXAMPLES / f"{function.name}.json").as_posix() if function.name in bodies else "FILE"
        body = f" -H 'content-type: application/json' -d @{file}" if method in ("POST", "PUT", "PATCH") else ""
        verb = "" if method == "GET" else f" -X {method}"
        path = re.sub(r"\{\*?(\w+)\??\}", lambda found: _member(members, found[1]), host.path_of(function))
        lines.append(f"curl -i{verb}{key}{body} '{stack.http_url}{path}'")
    return lines


def _member(members: Mapping[str, object], name: str) -> str:
    """A member of the examples as it stands in a path, in a shell's quotes; its name where there is none."""
    value = members.get(name)
    return quote(value, safe="", errors="replace") if isinstance(value, str) else f"<{name}>"


async def _reload(stack: Stack, names: list[str]) -> None:
    _say(stamped(f"changed: {', '.join(names)}; loading the app anew, as soon as nothing is in hand"))
    try:
        await stack.reload_app()
    except (ConfigError, HostError, PortError) as exc:
        _say(stamped(f"error: {exc}"))
        _say(stamped("the app is not loaded; it will be when a source changes"))
        return
    try:
        await stack.check_health()
    except HostError as exc:
        _say(stamped(f"error: {exc}"))


def _print_event(event: HostEvent) -> None:
    line = line_of(event)
    if line is not None:
        _say(stamped(line))


def _say(line: str, to: TextIO | None = None) -> None:
    print(line, file=to, flush=True)


if __name__ == "__main__":
    sys.exit(main())
