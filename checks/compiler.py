"""The official Bicep compiler, where one is at hand; nothing here needs it, and it is never fetched."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

SUBSCRIPTION: Final = "00000000-0000-0000-0000-000000000001"
TENANT: Final = "00000000-0000-0000-0000-000000000002"
SECONDS: Final = 180


class CompilerError(Exception):
    """The compiler refused the template; the message is its own."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """One compiler."""

    path: str

    def __str__(self) -> str:
        return self.path

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run it and return what it wrote."""
        # The machine may lack libicu.
        environment = {**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
        if not os.access(Path.home(), os.W_OK):
            # A single-file program unpacks its libraries below the home folder; elsewhere the place must be its own.
            environment.setdefault("DOTNET_BUNDLE_EXTRACT_BASE_DIR", _own_folder())
        return subprocess.run(  # noqa: S603 - a program that this file has looked up, without a shell
            [self.path, *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )


@functools.cache
def _own_folder() -> str:
    return tempfile.mkdtemp(prefix="bicep-")


def find(root: Path) -> Compiler | None:
    """The compiler that azd was pointed to, one in a neighbouring folder's `tools/bicep`, or the one on PATH."""
    given = os.environ.get("AZD_BICEP_TOOL_PATH")
    beside = sorted(root.parent.glob("*/tools/bicep/bicep"))
    for candidate in (Path(given) if given else None, *beside):
        if candidate is not None and candidate.is_file() and os.access(candidate, os.X_OK):
            return Compiler(str(candidate))
    found = shutil.which("bicep")
    return Compiler(found) if found else None


def findings(compiler: Compiler, file: Path) -> list[str]:
    """Everything that compiler and linter report; warnings don't show in the exit status, so they are read."""
    built = compiler.run("build", "--no-restore", "--stdout", str(file), cwd=file.parent)
    lines = [line for line in built.stderr.splitlines() if line.strip()]
    if built.returncode != 0 and not lines:
        lines = [f"{file}: exit status {built.returncode}"]
    return lines


def snapshot(compiler: Compiler, root: Path, parameters: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The resources that the compiler predicts for these parameters, in the order of the files.

    Raises: CompilerError.
    """
    found = prediction(compiler, root / "infra" / "main.bicep", parameters)
    return cast("list[Mapping[str, object]]", found["predictedResources"])


def prediction(compiler: Compiler, template: Path, parameters: Mapping[str, object]) -> Mapping[str, object]:
    """The compiler's whole prediction: resources and outputs.

    Raises: CompilerError.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.bicepparam"
        target = os.path.relpath(template.resolve(), Path(folder).resolve())
        lines = [f"using '{Path(target).as_posix()}'"]
        lines += [f"param {name} = {literal(value)}" for name, value in parameters.items()]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        done = compiler.run(
            "snapshot", str(file), "--subscription-id", SUBSCRIPTION, "--tenant-id", TENANT,
            "--location", "westeurope", "--deployment-name", "check", cwd=template.parent,
        )  # fmt: skip
        written = file.with_name("case.snapshot.json")
        if done.returncode != 0 or not written.exists() or re.search(r": (Warning|Error) ", done.stderr):
            raise CompilerError(done.stderr.strip() or done.stdout.strip())
        return cast("Mapping[str, object]", json.loads(written.read_text(encoding="utf-8")))


def literal(value: object) -> str:
    """A value as Bicep writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "\\'") + "'"
