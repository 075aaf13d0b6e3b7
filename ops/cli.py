"""The commands and their arguments.

Nothing is changed without `--yes`: without it, a command says what it would do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TextIO, TypeAlias

from ops import audit
from ops.bus import Bus
from ops.database import Database
from ops.environment import Target, project_folder, read_target, require_reachable
from ops.errors import ENVIRONMENT, INTERRUPTED, OpsError, UsageError
from ops.gaps import Gaps, Kind, Numbers
from ops.orders import show_order
from ops.output import Output
from ops.parked import ParkedCommands
from ops.parking import WORKING, Filter
from ops.reconcile import reconcile
from ops.replay import Options
from ops.roles import switch
from ops.sessions import list_sessions
from ops.settings import show_settings
from shared.adapters.system import SystemClock
from shared.contracts.values import LARGEST_POSITION
from shared.envelope import Role
from shared.errors import AppError, ConfigurationError

Actions: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

WAIT_SECONDS: Final = 60.0
RECHECK_SECONDS: Final = 10.0
LARGEST_FILE: Final = 4 * 1024 * 1024
EXIT_CODES: Final = (
    "exit codes: 0 done, 1 something is left over or violated, 2 wrong usage or setting, 3 environment, 130 interrupted"
)


@dataclass(frozen=True, slots=True)
class Services:
    """The clients of a command. They connect with their first call."""

    bus: Bus
    database: Database

    @classmethod
    @asynccontextmanager
    async def of(cls, target: Target) -> AsyncIterator[Self]:
        """Clients for an environment, closed at the end."""
        services = cls(Bus(target.settings.service_bus, target.settings.queues), Database(target.settings))
        try:
            yield services
        finally:
            await asyncio.gather(services.bus.close(), services.database.close())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    try:
        return asyncio.run(run(sys.argv[1:] if arguments is None else arguments, os.environ))
    except KeyboardInterrupt:
        print("interrupted; run the command again to go on", file=sys.stderr)  # noqa: T201
        return INTERRUPTED


async def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    project: Path | None = None,
    services: Services | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Run one command in an environment; gives the exit code. With `services`, whoever opened them closes them."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as exc:  # argparse has said what is wrong
        return int(exc.code or 0)
    output = Output(as_json=options.json, out=out, err=err)
    try:
        target = read_target(project or project_folder(Path.cwd()), environment)
        return await _dispatch(options, target, environment, output, services)
    except OpsError as exc:
        output.note(f"error: {exc}")
        return exc.code
    except (AppError, ConfigurationError) as exc:
        output.note(f"error: {exc}")
        return ENVIRONMENT


async def _dispatch(
    options: argparse.Namespace,
    target: Target,
    environment: Mapping[str, str],
    out: Output,
    services: Services | None,
) -> int:
    if options.command == "settings":
        return show_settings(target, out)
    if options.command in ("pause", "resume"):
        return await switch(
            target,
            options.role,
            disabled=options.command == "pause",
            environment=environment,
            group=options.group,
            app=options.app,
            really=options.yes,
            out=out,
        )
    if getattr(options, "yes", False) and not options.because:
        raise UsageError("--because is needed with --yes: the audit says why")
    corrected = _read_body(options.body) if getattr(options, "body", None) else None
    if services is not None:
        return await _on_services(options, target, services, out, corrected)
    await asyncio.to_thread(require_reachable, target)
    async with Services.of(target) as opened:
        return await _on_services(options, target, opened, out, corrected)


async def _on_services(
    options: argparse.Namespace, target: Target, services: Services, out: Output, corrected: bytes | None
) -> int:
    bus, database = services.bus, services.database
    match options.command:
        case "sessions":
            return await list_sessions(bus, out, role=options.role, session=options.session, limit=options.limit)
        case "order":
            return await show_order(bus, database, out, options.id)
        case "reconcile":
            return await reconcile(bus, database, SystemClock(), out, wait_seconds=options.wait)
        case "parked":
            return await _parked(options, ParkedCommands(bus, database, target.settings, out), corrected)
        case _:
            return await _gaps(options, Gaps(bus, database, out))


async def _parked(options: argparse.Namespace, parked: ParkedCommands, corrected: bytes | None) -> int:
    chosen = Filter(
        ids=tuple(options.id or ()),
        role=options.role,
        session=options.session,
        reason=options.reason,
        properties=tuple(options.property or ()),
    )
    match options.action:
        case "list":
            return await parked.overview(chosen)
        case "show":
            return await parked.show(chosen)
        case "replay":
            how = Options(
                actor=options.actor,
                because=options.because or "",
                wait_seconds=options.wait,
                out_of_order=options.out_of_order,
                corrected=corrected,
            )
            return await parked.replay(chosen, how, really=options.yes)
        case _:
            if chosen == Filter() and not options.all:
                raise UsageError("nothing is chosen: name messages by --id, --session or --reason, or say --all")
            return await parked.discard(chosen, actor=options.actor, because=options.because or "", really=options.yes)


async def _gaps(options: argparse.Namespace, gaps: Gaps) -> int:
    match options.action:
        case "list":
            return await gaps.overview()
        case "show":
            return await gaps.show(options.id)
        case "skip":
            kind: Kind = options.kind
            if (kind == "entries") != (options.stream is not None):
                raise UsageError("--stream names the stream of entries, and is for entries alone")
            numbers = Numbers(kind, options.id, options.stream, options.first, options.to or options.first)
            return await gaps.skip(numbers, actor=options.actor, because=options.because or "", really=options.yes)
        case _:
            return await gaps.discard(
                options.id, options.entry, actor=options.actor, because=options.because or "", really=options.yes
            )


def parser() -> argparse.ArgumentParser:
    """The arguments of all commands."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print the result as JSON")
    top = argparse.ArgumentParser(prog="ops", description=__doc__, epilog=EXIT_CODES, allow_abbrev=False)
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=text, description=text, allow_abbrev=False)

    sessions = command("sessions", "active sessions, and the messages that wait in each")
    sessions.add_argument("--role", type=_role, metavar="ROLE", help=_ROLES)
    sessions.add_argument("--session", metavar="ID", help="this session alone")
    sessions.add_argument("--limit", type=_positive, default=50, metavar="N", help="rows to print (50)")

    parked = commands.add_parser("parked", help="messages in quarantine and dead-letter queues", allow_abbrev=False)
    actions = parked.add_subparsers(dest="action", required=True)
    _parked_actions(actions, common)
    gaps = commands.add_parser("gaps", help="missing numbers, and what waits for them", allow_abbrev=False)
    _gaps_actions(gaps.add_subparsers(dest="action", required=True), common)

    for name, text in (("pause", "switch a role's function off"), ("resume", "switch it on again")):
        each = command(name, text)
        each.add_argument("role", type=_role, metavar="ROLE", help=_ROLES)
        each.add_argument("--group", metavar="NAME", help="Azure: resource group (AZURE_RESOURCE_GROUP)")
        each.add_argument("--app", metavar="NAME", help="Azure: function app (AZURE_FUNCTION_NAME)")
        each.add_argument("--yes", action="store_true", help="Azure: run the command, don't only print it")

    order = command("order", "everything that is known about an order")
    order.add_argument("id", metavar="ID", help="order id")
    check = command("reconcile", "check all invariants; exit code 1 when one is violated or something is left over")
    check.add_argument("--wait", type=_seconds, default=RECHECK_SECONDS, metavar="S", help="look again so long (10)")
    command("settings", "the effective settings and where they come from; no secrets")
    return top


def _parked_actions(actions: Actions, common: argparse.ArgumentParser) -> None:
    texts = {
        "list": "list parked messages",
        "show": "show them whole, with what is stored under their keys",
        "replay": "send them again, session by session, in order; a plan without --yes",
        "discard": "take them out for good; a plan without --yes",
    }
    for name, text in texts.items():
        each = actions.add_parser(name, parents=[common], help=text, description=text, allow_abbrev=False)
        each.add_argument("--id", action="append", metavar="ID", help="this one (its beginning will do); repeatable")
        each.add_argument("--role", type=_role, metavar="ROLE", help=_ROLES)
        each.add_argument("--session", metavar="ID", help="of this session")
        each.add_argument("--reason", metavar="REASON", help="parked for this reason")
        each.add_argument(
            "--property", action="append", type=_property, metavar="NAME=VALUE", help="with this property; repeatable"
        )
        if name in ("replay", "discard"):
            _write_arguments(each)
        if name == "discard":
            each.add_argument("--all", action="store_true", help="all of them")
        if name == "replay":
            each.add_argument("--wait", type=_seconds, default=WAIT_SECONDS, metavar="S", help="per message (60)")
            each.add_argument("--out-of-order", action="store_true", help="also unnumbered commands behind later ones")
            each.add_argument("--body", type=Path, metavar="FILE", help="a corrected body, for one message")


def _gaps_actions(actions: Actions, common: argparse.ArgumentParser) -> None:
    def action(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, parents=[common], help=text, description=text, allow_abbrev=False)

    action("list", "list what waits for a missing number, and entries refused behind a close")
    show = action("show", "show the numbers of an order or a ledger")
    show.add_argument("id", metavar="ID", help="order or ledger id")
    skip = action("skip", "pass over numbers that will never come; a plan without --yes")
    skip.add_argument("kind", choices=("entries", "commands", "batches"), help="what is numbered")
    skip.add_argument("id", metavar="ID", help="order id; for batches the ledger id")
    skip.add_argument("--stream", metavar="NAME", help="of entries: order, or ledger.<ledger id>")
    skip.add_argument("--from", dest="first", type=_number, required=True, metavar="N", help="the expected number")
    skip.add_argument("--to", type=_number, metavar="N", help="up to this one (the same)")
    _write_arguments(skip)
    discard = action("discard", "give up an entry that was refused behind a close; a plan without --yes")
    discard.add_argument("id", metavar="ORDER", help="order id")
    discard.add_argument("entry", metavar="ENTRY", help="the entry's key or document id")
    _write_arguments(discard)


def _write_arguments(to: argparse.ArgumentParser) -> None:
    to.add_argument("--yes", action="store_true", help="do it")
    to.add_argument("--because", metavar="TEXT", help="why, for the audit; needed with --yes")
    to.add_argument("--actor", default=audit.default_actor(), metavar="NAME", help="who, for the audit (the user)")


_ROLES: Final = f"one of {', '.join(role.value for role in WORKING)}"


def _role(text: str) -> Role:
    if text not in {role.value for role in WORKING}:
        raise argparse.ArgumentTypeError(f"{text!r} is no role; {_ROLES}")
    return Role(text)


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return value


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _number(text: str) -> int:
    value = _positive(text)
    if value > LARGEST_POSITION:
        raise argparse.ArgumentTypeError(f"{text!r} is above {LARGEST_POSITION}")
    return value


def _read_body(path: Path) -> bytes:
    try:
        body = path.read_bytes()
    except OSError as exc:
        raise UsageError(f"--body {path}: {exc.strerror or exc}") from exc
    if len(body) > LARGEST_FILE:
        raise UsageError(f"--body {path}: longer than {LARGEST_FILE} bytes")
    return body
