"""Writes `.azure/<environment>/local.settings.json`: the tracked file's values, with the cloud's in place of loopback.

azd runs this after provisioning, with the outputs of main.bicep in the environment. The connections are identity
connections without credential or client id: the developer's own login (`az login`, `azd auth login`) is used. The
tracked local.settings.json is never changed, and neither file is shipped.

    python3 infra/hooks/local_settings.py                        write the file (as a hook of azd)
    python3 infra/hooks/local_settings.py run ENV COMMAND ...    run a command with its values in the environment
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONNECTIONS = {
    "ServiceBusConnection": "ServiceBusConnection__fullyQualifiedNamespace",
    "CosmosConnection": "CosmosConnection__accountEndpoint",
}
SETTINGS = ("ORDERS_QUEUE", "LEDGER_QUEUE", "LEDGER_ENTRIES_QUEUE", "QUARANTINE_QUEUE", "COSMOS_DATABASE")
FAILED, USAGE = 1, 2


def cloud_values(local: Mapping[str, str], outputs: Mapping[str, str]) -> dict[str, str]:
    """The values of a local file, with the cloud's connections and names.

    Raises: KeyError, naming the output that is missing.
    """
    values = {name: value for name, value in local.items() if name not in CONNECTIONS}
    for name in (*CONNECTIONS.values(), *SETTINGS):
        if not outputs.get(name):
            raise KeyError(name)
        values[name] = outputs[name]
    return values


def file_of(root: Path, environment: str) -> Path:
    """Where an environment's values are kept; `.azure` is ignored by git."""
    return root / ".azure" / environment / "local.settings.json"


def write(root: Path, environment: Mapping[str, str]) -> int:
    """Write the file; the exit code is 1 when azd's environment lacks something."""
    tracked = json.loads((root / "local.settings.json").read_text(encoding="utf-8"))
    try:
        name = environment["AZURE_ENV_NAME"]
        values = cloud_values(tracked["Values"], environment)
    except KeyError as missing:
        sys.stderr.write(f"local_settings: {missing} is not in azd's environment; run azd provision\n")
        return FAILED
    file = file_of(root, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"IsEncrypted": False, "Values": values}, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(
        f"The cloud's settings are in {file.relative_to(root).as_posix()}. A command with them, as yourself:\n"
        f"  python3 infra/hooks/local_settings.py run {name} python3 dev.py ops parked list\n"
    )
    return 0


def run(root: Path, name: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command with an environment's values.

    The flat connections are set empty: environment variables win over local.settings.json, and the app takes an empty
    one for absent.
    """
    file = file_of(root, name)
    if not file.is_file():
        sys.stderr.write(f"local_settings: {file} is missing; run azd provision\n")
        return FAILED
    values = json.loads(file.read_text(encoding="utf-8"))["Values"]
    absent = dict.fromkeys(CONNECTIONS, "")
    done = subprocess.run(list(command), env={**environment, **absent, **values}, check=False)  # noqa: S603
    return done.returncode


def main(arguments: Sequence[str]) -> int:
    """Write, or run."""
    if not arguments:
        return write(ROOT, os.environ)
    if arguments[0] == "run" and len(arguments) >= 3:
        return run(ROOT, arguments[1], arguments[2:], os.environ)
    sys.stderr.write(f"usage: local_settings.py [run ENV COMMAND ...], not {' '.join(arguments)!r}\n")
    return USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
