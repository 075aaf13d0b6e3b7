"""`ops pause|resume ROLE`: switches a role's function off and on; its queue goes on taking messages.

The embedded stack has a control endpoint for it. In Azure it is an app setting, the platform's own switch, set through
the Azure CLI: it needs the right to write the app's settings, and restarts the app.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from typing import Final

import aiohttp

from ops.environment import STACK_FILE, Target
from ops.errors import DONE, LEFT_OVER, EnvironmentProblemError, UsageError
from ops.output import Output
from shared.envelope import Role

FUNCTIONS: Final[Mapping[Role, str]] = {
    Role.ORDERS: "process_order",
    Role.LEDGER: "fan_out_ledger",
    Role.LEDGER_ENTRIES: "apply_entry",
}
CONTROL_SECONDS: Final = 30
GROUP, APP = "AZURE_RESOURCE_GROUP", "AZURE_FUNCTION_NAME"


async def switch(
    target: Target,
    role: Role,
    *,
    disabled: bool,
    environment: Mapping[str, str],
    group: str | None,
    app: str | None,
    really: bool,
    out: Output,
) -> int:
    """Pause or resume a role."""
    function = FUNCTIONS[role]
    if target.stack is not None:
        await _ask_stack(target.stack.control_url, target.stack.control_token, function, disabled=disabled)
        out.line(f"{role.value} is {'paused' if disabled else 'resumed'} ({function})")
        out.result({"role": role.value, "function": function, "paused": disabled})
        return DONE
    if (target.settings.service_bus.connection_string or "").find("UseDevelopmentEmulator=true") >= 0:
        raise EnvironmentProblemError(f"no embedded stack runs here: there is no {STACK_FILE}")
    group, app = group or environment.get(GROUP), app or environment.get(APP)
    if not group or not app:
        raise UsageError(f"--group and --app are needed, or {GROUP} and {APP} in the environment")
    command = az_command(group, app, function, disabled=disabled)
    text = " ".join(command)
    out.note(text)
    out.result({"role": role.value, "function": function, "paused": disabled if really else None, "command": text})
    program = shutil.which(command[0])
    if program is None:
        raise EnvironmentProblemError("the Azure CLI (az) is not installed here; run the command above where it is")
    if not really:
        out.line("nothing is changed without --yes")
        return DONE
    process = await asyncio.create_subprocess_exec(program, *command[1:], stdout=asyncio.subprocess.DEVNULL)
    if await process.wait() != 0:
        return LEFT_OVER
    out.line(f"{role.value} is {'paused' if disabled else 'resumed'} ({function}); the app restarts")
    return DONE


def az_command(group: str, app: str, function: str, *, disabled: bool) -> list[str]:
    """The call that sets the platform's switch, or takes it away."""
    name = f"AzureWebJobs.{function}.Disabled"
    head = ["az", "functionapp", "config", "appsettings"]
    tail = (
        ["set", "-g", group, "-n", app, "--settings", f"{name}=true"]
        if disabled
        else ["delete", "-g", group, "-n", app, "--setting-names", name]
    )
    return [*head, *tail]


async def _ask_stack(url: str, token: str, function: str, *, disabled: bool) -> None:
    timeout = aiohttp.ClientTimeout(total=CONTROL_SECONDS)
    address = f"{url}/control/functions/{function}"
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(address, json={"disabled": disabled}, headers=headers) as answer,
        ):
            text = await answer.text()
            if answer.status != 200:
                raise EnvironmentProblemError(f"{address}: HTTP {answer.status}: {_error(text)}")
    except (aiohttp.ClientError, TimeoutError) as exc:
        raise EnvironmentProblemError(f"{address} doesn't answer: is the stack running?") from exc


def _error(text: str) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
