"""One command for people and machines: makes `.venv`, installs the pinned packages, runs the project's commands in it.

Standard library only. The file itself runs under any Python from 3.8 on, so that somebody whose Python is too old is
told what to install instead of seeing a syntax error.

`test` loads this file into pytest as a plug-in (`-p dev`): it lists at the end what did not run because an optional
program is missing, and makes that a failure where `CI` is `true`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

    import pytest

ROOT = Path(__file__).resolve().parent
REQUIREMENTS = ROOT / "requirements-dev.txt"
VENV_NAMED = os.environ.get("DEV_VENV") or ".venv"
VENV_NAME = re.compile(r"\.venv(-[A-Za-z0-9._-]+)?")  # the folder is made anew when it is unusable, so it must be ours
VENV = ROOT / VENV_NAMED
STAMP = ".dev-stamp"

NEWEST_FIRST = ((3, 13), (3, 12), (3, 11))
SUPPORTED = "Python 3.11, 3.12 or 3.13"

FAILED, USAGE, ENVIRONMENT, INTERRUPTED = 1, 2, 3, 130
TERMINATED = 128 + 15  # what a shell reports for SIGTERM

OPTIONAL = "optional:"
BESIDE = "optional: beside the project"  # such a skip is never a failure: the thing can't be installed


RUN_MODULE = """\
import os, runpy, sys
sys.path[0] = os.getcwd()
try:
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
except KeyboardInterrupt:
    sys.exit(130)
"""
# As `-m` does, but a Ctrl-C while a command is still importing is no traceback either.


class MissingError(Exception):
    """This machine lacks something; the text names what, and what to do."""


class Command(NamedTuple):
    """A command of this file: the module that it runs, and the file that must be there for it to be offered."""

    module: str
    needs: str
    arguments: tuple[str, ...]
    help: str
    files: tuple[str, ...] = ()
    """Options that name a file: relative to where the caller is, though the command runs in the project."""


STACK_FILES = ("--config", "--data", "--faults")

COMMANDS: dict[str, Command] = {
    "demo": Command(
        "local.demo",
        "local/demo/__main__.py",
        (),
        "the whole flow on the embedded stack, with proof",
        ("--input", "--json"),
    ),
    "start": Command(
        "local",
        "local/__main__.py",
        ("--app", "--health", "/api/health"),
        "the embedded stack and the app, until Ctrl-C",
        STACK_FILES,
    ),
    "stack": Command("local", "local/__main__.py", (), "broker and Cosmos DB alone, until Ctrl-C", STACK_FILES),
    "ops": Command("ops", "ops/__main__.py", (), "the operators' commands: look, replay, skip, reconcile", ("--body",)),
    "test": Command(
        "pytest",
        "tests",
        # A file at a time, side by side: most of the time is waiting for clocks, and a file may share a stack.
        ("-p", "dev", "-n", "logical", "--maxprocesses", "4", "--dist", "loadfile"),
        "the tests; further arguments go to pytest (-n 0: one at a time, as --pdb wants it)",
    ),
    "simulate": Command(
        "tests.simulation", "tests/simulation/__main__.py", (), "seeded schedules of workers, crashes, faults"
    ),
    "chaos": Command(
        "tests.chaos", "tests/chaos/__main__.py", (), "real processes under seeded faults, with proof", ("--json",)
    ),
    "bench": Command("bench", "bench/__main__.py", (), "what the embedded stack costs, measured"),
}


def main(arguments: Sequence[str]) -> int:
    """Run one command; the result is its exit code (0 done, 1 failed, 2 usage, 3 environment, 130 interrupted)."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else USAGE
    name, rest = arguments[0], list(arguments[1:])
    if name not in offered():
        print(f"dev.py: unknown command {name!r}\n\n{usage()}", file=sys.stderr)
        return USAGE
    if name == "check" and rest:
        if rest in (["-h"], ["--help"]):
            print("usage: dev.py check\n\nruff, mypy --strict, the settings check and the layer test; one line each")
            return 0
        print(f"dev.py check: unknown argument {rest[0]!r}", file=sys.stderr)
        return USAGE
    if not VENV_NAME.fullmatch(VENV_NAMED):
        print(f"dev.py: DEV_VENV: {VENV_NAMED!r} is neither .venv nor .venv-NAME", file=sys.stderr)
        return USAGE
    try:
        python = prepare(VENV, REQUIREMENTS)
    except MissingError as problem:
        print(f"dev.py: {problem}", file=sys.stderr)
        return ENVIRONMENT
    if name == "check":
        return check(python)
    command = COMMANDS[name]
    start = ["-m", command.module] if command.module == "pytest" else ["-c", RUN_MODULE, command.module]
    return hand_over([str(python), *start, *command.arguments, *from_here(rest, command.files)])


def from_here(arguments: Sequence[str], files: Sequence[str]) -> list[str]:
    """The arguments with the files that these options name as absolute paths."""
    absolute = list(arguments)
    for index, argument in enumerate(arguments):
        if argument == "--":
            break
        name, _, value = argument.partition("=")
        if value and name in files:
            absolute[index] = f"{name}={Path(value).absolute()}"
        elif index and arguments[index - 1] in files and argument and not argument.startswith("-"):
            absolute[index] = str(Path(argument).absolute())
    return absolute


def offered() -> list[str]:
    """Name the commands whose code is in this tree; a fork may have deleted the embedded stack."""
    return [name for name, command in COMMANDS.items() if (ROOT / command.needs).exists()] + ["check"]


def usage() -> str:
    """Say how to call this file."""
    lines = [f"  {name:<8} {COMMANDS[name].help}" for name in offered() if name in COMMANDS]
    return "\n".join(
        [
            "usage: python3 dev.py COMMAND [ARGUMENT ...]",
            "",
            *lines,
            "  check    ruff, mypy --strict, the settings check and the layer test; one line each",
            "",
            "`dev.py COMMAND --help` shows the arguments of every command but check.",
            f"The first call makes {VENV.name} (DEV_VENV names another folder) with {SUPPORTED} and installs",
            "requirements-dev.txt; a later call only does so after that file or the Python has changed.",
            "",
            "exit codes: 0 done, 1 a proof, test or check failed, 2 wrong usage, 3 environment, 130 interrupted",
        ]
    )


# The virtual environment


class Python(NamedTuple):
    """An interpreter that this project can use."""

    path: str
    version: str


def prepare(venv: Path, requirements: Path) -> Path:
    """Return the Python of a complete virtual environment, making or repairing it first.

    The stamp is written last, so an interrupted or failed installation is seen and finished by the next call.
    Raises: MissingError, when no Python fits or the installation fails.
    """
    if not requirements.is_file():
        raise MissingError(f"{requirements} is missing")
    python = find_python()
    inside = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp, expected = venv / STAMP, stamp_of(python.version, requirements)
    if inside.exists() and read_stamp(stamp) == expected:
        return inside
    stamp.unlink() if stamp.exists() else None
    if not is_usable(inside, python.version):
        print(f"making {venv.name} with Python {python.version}", flush=True)
        make_venv(python, venv)
    install(inside, requirements)
    stamp.write_text(expected + "\n", encoding="utf-8")
    return inside


def stamp_of(version: str, requirements: Path) -> str:
    """Tell one installation from another: the Python's version and the pinned packages."""
    return hashlib.sha256(f"{version}\n".encode() + requirements.read_bytes()).hexdigest()


def read_stamp(stamp: Path) -> str | None:
    """Return what the last complete installation left, or nothing."""
    try:
        return stamp.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


def is_usable(inside: Path, version: str) -> bool:
    """Tell whether a virtual environment's Python runs, is of that version and has pip."""
    ask = "import pip, platform; print(platform.python_version())"
    return inside.exists() and answer_of(str(inside), ask) == version


def make_venv(python: Python, venv: Path) -> None:
    """Make the folder anew. An unusable environment is removed, anything else that lies there is not."""
    if venv.is_symlink() or (venv.exists() and not venv.is_dir()):
        raise MissingError(f"{venv} is no folder; take it away")
    if venv.is_dir() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").is_file():
        raise MissingError(f"{venv} holds something else than a virtual environment; take it away")
    remove_venv(venv)
    made = subprocess.run(
        [python.path, "-m", "venv", str(venv)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if made.returncode != 0:
        output = made.stdout.decode("utf-8", "replace")
        raise MissingError(f"{python.path} -m venv {venv} failed:\n{last_lines(output.strip().splitlines())}")


def remove_venv(venv: Path) -> None:
    """Remove an environment. What tells that it is one goes last: the next call goes on with an interrupted removal."""
    if not venv.exists():
        return
    try:
        for each in venv.iterdir():
            if each.name == "pyvenv.cfg":
                continue
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(str(each))
            else:
                each.unlink()
        shutil.rmtree(str(venv))
    except OSError as problem:
        raise MissingError(f"{venv} can't be removed: {problem}") from None


def install(inside: Path, requirements: Path) -> None:
    """Install the pinned packages, showing how far it is; a failure carries pip's last lines."""
    wanted = sum(1 for line in requirements.read_text(encoding="utf-8").splitlines() if re.match(r"[A-Za-z0-9]", line))
    print(f"installing {wanted} packages into {inside.parent.parent.name} (this takes a minute)", flush=True)
    quiet = ("--no-input", "--disable-pip-version-check")
    command = [str(inside), "-m", "pip", "install", *quiet, "-r", str(requirements)]
    tail: deque[str] = deque(maxlen=15)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=str(ROOT)) as pip:
        for line in text_lines(pip.stdout or ()):
            tail.append(line)
            found = re.match(r"(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)", line)
            if found:
                show_progress(f"  {found.group(1)}")
            elif line.startswith("Installing collected packages"):
                show_progress("  all fetched, installing")
    show_progress("", done=True)
    if pip.returncode != 0:
        raise MissingError(f"pip could not install {requirements.name}; its last lines:\n{last_lines(list(tail))}")


def text_lines(stream: Iterable[bytes]) -> Iterator[str]:
    """Decode a program's output line by line, whatever its encoding."""
    for line in stream:
        yield line.decode("utf-8", "replace").rstrip()


def show_progress(text: str, *, done: bool = False) -> None:
    """Overwrite one line of a terminal; a log file gets no such lines."""
    if sys.stdout.isatty():
        sys.stdout.write(f"\r\033[K{text[:78]}" if not done else "\r\033[K")
        sys.stdout.flush()


def last_lines(lines: Sequence[str]) -> str:
    """Return the end of a program's output, indented."""
    return "\n".join(f"  {line}" for line in lines[-15:])


# Finding Python


def find_python() -> Python:
    """Return the first Python that fits and can make virtual environments.

    Raises: MissingError, naming what to install.
    """
    without_venv: Python | None = None
    for candidate in candidates():
        python = probe(candidate)
        if python is None:
            continue
        if answer_of(python.path, "import venv, ensurepip; print('yes')") == "yes":
            return python
        without_venv = without_venv or python
    if without_venv is not None:
        package = "python" + ".".join(without_venv.version.split(".")[:2]) + "-venv"
        raise MissingError(
            f"{without_venv.path} can't make virtual environments: its modules venv and ensurepip are missing. "
            f"On Debian and Ubuntu install the package python3-venv or {package} (apt install {package})."
        )
    running = ".".join(str(part) for part in sys.version_info[:3])
    raise MissingError(
        f"this project needs {SUPPORTED}, and none was found (this is Python {running}). "
        f"Install one: {how_to_install()}"
    )


def how_to_install() -> str:
    """Name the usual source of a Python on this system."""
    if sys.platform == "win32":
        return "winget install Python.Python.3.13, or the installer from python.org."
    if sys.platform == "darwin":
        return "brew install python@3.13, or the installer from python.org."
    return "apt install python3.13 python3.13-venv, dnf install python3.13, or pyenv install 3.13."


def candidates() -> Iterator[list[str]]:
    """Name the interpreters worth asking: this one, those on PATH, the launcher's, pyenv's."""
    yield [getattr(sys, "_base_executable", None) or sys.executable]  # the base: a venv can't be rebuilt from inside
    yield [sys.executable]
    names = [f"{major}.{minor}" for major, minor in NEWEST_FIRST]
    for name in names:
        found = shutil.which(f"python{name}")
        if found:
            yield [found]
    launcher = shutil.which("py") if os.name == "nt" else None
    for name in names if launcher else ():
        yield [str(launcher), f"-{name}"]
    for path in candidates_of_pyenv(names):
        yield [path]


def candidates_of_pyenv(names: Iterable[str]) -> Iterator[str]:
    """Name the interpreters that pyenv keeps for these versions, whether or not one is switched on."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for folder in (home / "versions", home / "pyenv-win" / "versions"):
        for name in names:
            for version in sorted(folder.glob(f"{name}.*"), key=lambda path: numbers(path.name), reverse=True):
                yield str(version / ("python.exe" if os.name == "nt" else "bin/python"))


def numbers(text: str) -> list[int]:
    """Order 3.11.10 behind 3.11.9."""
    return [int(part) for part in re.findall(r"\d+", text)]


def probe(command: Sequence[str]) -> Python | None:
    """Ask an interpreter for its path and version; nothing when it doesn't run or doesn't fit."""
    told = answer_of(*command, "import sys, platform; print(sys.executable); print(platform.python_version())")
    path, _, version = (told or "").partition("\n")
    if tuple(numbers(version)[:2]) not in NEWEST_FIRST:
        return None
    return Python(path.strip(), version.strip())


def answer_of(*command_and_code: str) -> str | None:
    """Run a line of Python in an interpreter and return what it prints; nothing when that fails."""
    *command, code = command_and_code
    try:
        done = subprocess.run(
            [*command, "-I", "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=60, check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


# Running


def hand_over(command: Sequence[str]) -> int:
    """Let the command take this process's place, so that signals and the exit code are its own.

    Windows has no such call: there this process waits, leaves Ctrl-C and Ctrl-Break to the child, which gets them from
    the console too, and takes the child along when it is ended.
    """
    os.chdir(str(ROOT))
    os.environ.setdefault("PYTHONUTF8", "1")  # a console or pipe in another code page must not break a table
    if sys.stdout is not None:
        sys.stdout.flush()
    if os.name != "nt":
        try:
            os.execv(command[0], list(command))  # noqa: S606 (no shell, our own interpreter)
        except OSError as problem:
            print(f"dev.py: {command[0]}: {problem.strerror}", file=sys.stderr)
            return ENVIRONMENT
    return wait_for(command)


def wait_for(command: Sequence[str]) -> int:
    """Run a child to its end and return its exit code; it gets the signals that this process gets."""
    with subprocess.Popen(command) as child:
        keep = tie_to_this_process(child)

        def pass_on(number: int, _frame: FrameType | None) -> None:
            if os.name != "nt" and child.poll() is None:
                child.send_signal(number)

        for name in ("SIGINT", "SIGTERM", "SIGBREAK", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), pass_on)
        code = child.wait()
        del keep
    if code < 0:
        return 128 - code
    return INTERRUPTED if code == 0xC000013A else code  # STATUS_CONTROL_C_EXIT


if sys.platform == "win32":
    import ctypes
    from ctypes import wintypes

    def tie_to_this_process(child: subprocess.Popen[bytes]) -> object:
        """Have the system end the child when this process is ended, which no handler of ours could do."""
        kernel = ctypes.WinDLL("kernel32", use_last_error=True)
        kernel.CreateJobObjectW.restype = wintypes.HANDLE
        kernel.CreateJobObjectW.argtypes = [ctypes.c_void_p, wintypes.LPCWSTR]
        kernel.SetInformationJobObject.argtypes = [wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD]
        kernel.AssignProcessToJobObject.argtypes = [wintypes.HANDLE, wintypes.HANDLE]
        job = kernel.CreateJobObjectW(None, None)
        # JOBOBJECT_EXTENDED_LIMIT_INFORMATION (class 9), all zero but LimitFlags, which stands behind two 64-bit time
        # limits: JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE.
        size = 144 if ctypes.sizeof(ctypes.c_void_p) == 8 else 112
        flags = (0x2000).to_bytes(4, "little")
        information = ctypes.create_string_buffer(bytes(16) + flags + bytes(size - 20), size)
        kernel.SetInformationJobObject(job, 9, information, size)
        kernel.AssignProcessToJobObject(job, int(getattr(child, "_handle")))  # noqa: B009 (not in the type stubs)
        return job

else:

    def tie_to_this_process(child: subprocess.Popen[bytes]) -> object:
        """Nothing to do: a POSIX child takes this process's place, or gets its signals passed on."""
        return child


PARITY_REPORT = "What differs between Azure and local:"


def check(python: Path) -> int:
    """Run the static checks; one line each, the output of those that fail, and what differs between Azure and local."""
    steps = [
        ("ruff", ["-m", "ruff", "check", "."]),
        ("mypy --strict", ["-m", "mypy"]),  # strict by pyproject.toml
        ("settings", ["-m", "checks"]),
        ("layers", ["-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "tests/unit/test_layers.py"]),
    ]
    failed = 0
    for name, arguments in steps:
        done = subprocess.run(
            [str(python), *arguments], cwd=str(ROOT), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )
        output = done.stdout.decode("utf-8", "replace").strip()
        closing = output.splitlines()[-1] if output else ""
        print(f"{name:<14} {'ok' if done.returncode == 0 else 'FAILED'}   {closing.strip('= ')}", flush=True)
        if done.returncode != 0:
            failed += 1
            print(output, flush=True)
        elif PARITY_REPORT in output:
            print("\n" + output[output.index(PARITY_REPORT) :].rpartition("\n")[0], flush=True)
    return FAILED if failed else 0


def terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """Leave through the clean-up code, which ends a running child."""
    raise SystemExit(TERMINATED)


# The plug-in of `test`

_not_run: dict[str, str] = {}  # each once: every process of the run may report it
_tables: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that an optional program would have needed, and what a test wants to be shown."""
    _note(report.nodeid, report.longrepr)
    if report.when == "call":
        _tables.extend(str(value) for name, value in report.user_properties if name == "table")


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a whole file that an optional program would have needed."""
    _note(report.nodeid, report.longrepr)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Where everything has to be installed, what did not run is a failure."""
    if exitstatus == 0 and _counts_as_failure():
        session.exitstatus = FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the tests' tables, and list what did not run, and why."""
    for table in _tables:
        terminalreporter.section(table.partition("\n")[0])
        terminalreporter.line(table.partition("\n")[2])
    if not _not_run:
        return
    terminalreporter.section("did not run: something optional is missing")
    for node, reason in sorted(_not_run.items()):
        terminalreporter.line(f"{node}: {reason}")
    if _counts_as_failure():
        terminalreporter.line("CI=true: this counts as a failure, except for what lies beside the project")


def _note(node: str, longrepr: object) -> None:
    if isinstance(longrepr, tuple) and len(longrepr) == 3:  # (path, line, reason) of a skip
        reason = re.sub(r"^Skipped: ", "", str(longrepr[2]))
        if reason.startswith(OPTIONAL):
            _not_run[node] = reason[len(OPTIONAL) :].strip()


def _counts_as_failure() -> bool:
    beside = BESIDE[len(OPTIONAL) :].strip()
    is_ci = os.environ.get("CI", "").lower() in ("true", "1")
    return is_ci and any(not reason.startswith(beside) for reason in _not_run.values())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
