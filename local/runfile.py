"""`.stack.json`: where a running stack tells other programs of the project its addresses and keys.

A live file is left alone; a stack deletes only its own. Whether one is live is asked of the stack itself, through the
control endpoint and token in the file: a process number alone may be somebody else's by now.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

NAME: Final = ".stack.json"
_ASK_SECONDS: Final = 2.0


def write(folder: Path, content: Mapping[str, object]) -> bool:
    """Write the file for this stack; False when a live one is there."""
    path = folder / NAME
    there = read(path)
    if there is not None and is_live(there):
        return False
    new = path.with_name(f"{NAME}.{os.getpid()}")
    descriptor = os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
    new.replace(path)
    return True


def remove(folder: Path, token: str) -> None:
    """Delete the file if it is this stack's."""
    path = folder / NAME
    there = read(path)
    if there is not None and there.get("controlToken") == token:
        with contextlib.suppress(OSError):
            path.unlink()


def read(path: Path) -> dict[str, object] | None:
    """The file's content; None when there is none, or nothing that a stack would write."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def is_live(content: Mapping[str, object]) -> bool:
    """Whether the stack of this file answers."""
    try:
        address = urlsplit(str(content.get("controlUrl")))
        host, port = address.hostname, address.port
    except ValueError:  # no address at all: nobody wrote this who runs
        return False
    if host != "127.0.0.1" or port is None:
        return False
    connection = http.client.HTTPConnection(host, port, timeout=_ASK_SECONDS)
    try:
        connection.request("GET", "/control/stack", headers={"Authorization": f"Bearer {content.get('controlToken')}"})
        return connection.getresponse().status == http.HTTPStatus.OK
    except TimeoutError:
        return True  # somebody listens: stopped in a debugger, perhaps
    except (OSError, ValueError, http.client.HTTPException):  # ValueError: a token that no header can hold
        return False
    finally:
        connection.close()
