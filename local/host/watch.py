"""Notices that the project's sources have changed, by looking at times of modification."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

POLL_SECONDS: Final = 0.5
_WATCHED_FILES: Final = frozenset({"host.json", "local.settings.json"})
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "local", "tests", "ops", "checks", "bench", "docs"})

Stamp = tuple[int, int]


def stamps(project: Path) -> dict[str, Stamp]:
    """Time and size of each file that the app is made of: *.py, host.json, local.settings.json."""
    return dict(_stamps(str(project), is_top=True))


def _stamps(folder: str, *, is_top: bool) -> Iterator[tuple[str, Stamp]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # it may be gone by now
        return
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and not (is_top and entry.name in _SKIPPED):
                    yield from _stamps(entry.path, is_top=False)
            elif entry.name.endswith(".py") or (is_top and entry.name in _WATCHED_FILES):
                status = entry.stat()
                yield entry.path, (status.st_mtime_ns, status.st_size)
        except OSError:
            continue


async def watch(
    project: Path,
    known: Mapping[str, Stamp],
    changed: Callable[[list[str]], Awaitable[None]],
    *,
    poll: float = POLL_SECONDS,
) -> None:
    """Call `changed` with the names of files that differ from the known ones, once a change has settled.

    Runs until cancelled. `known` is what the app was loaded from: taken before, so that no change is missed.
    """
    while True:
        await asyncio.sleep(poll)
        seen = await asyncio.to_thread(stamps, project)
        if seen == known:
            continue
        # An editor writes several files, and one file in steps: wait until nothing moves.
        while True:
            await asyncio.sleep(poll / 2)
            again = await asyncio.to_thread(stamps, project)
            if again == seen:
                break
            seen = again
        names = sorted({Path(path).name for path in known.keys() | seen.keys() if known.get(path) != seen.get(path)})
        known = seen
        await changed(names)
