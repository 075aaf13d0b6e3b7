"""dev.py: one command that works on a fresh clone, repairs what is half made, and says what is missing."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import dev

ROOT = Path(__file__).resolve().parents[2]
posix_only = pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for an interpreter")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a small project with dev.py in it."""
    shutil.copy(ROOT / "dev.py", tmp_path)
    (tmp_path / "requirements-dev.txt").write_text("# nothing to install\n", encoding="utf-8")
    (tmp_path / "tests").mkdir()
    return tmp_path


def run(tree: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a project's dev.py."""
    env = {name: value for name, value in os.environ.items() if name not in ("CI", "DEV_VENV")} | environment
    return subprocess.run(
        [sys.executable, "dev.py", *arguments],
        cwd=tree, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def script(path: Path, text: str) -> Path:
    """Write a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def interpreter(path: Path, version: str, *, venv: bool) -> Path:
    """Let a script answer dev.py's questions as an interpreter of that version would."""
    answer = "echo yes" if venv else "exit 1"
    return script(path, f'case "$*" in *ensurepip*) {answer};; *) echo "{path}"; echo {version};; esac')


def ready(tree: Path) -> Path:
    """Give a project a complete environment: this one, behind a script."""
    python = script(tree / ".venv" / "bin" / "python", f'exec "{sys.executable}" "$@"')
    found = dev.find_python()
    stamp = dev.stamp_of(found.version, tree / "requirements-dev.txt")
    (tree / ".venv" / dev.STAMP).write_text(stamp, encoding="utf-8")
    return python


# Usage


def test_it_is_written_for_every_python_from_3_8_on() -> None:
    ast.parse((ROOT / "dev.py").read_text(encoding="utf-8"), feature_version=(3, 8))
    allowed = set(sys.stdlib_module_names) | {"__future__"}
    tree = ast.parse((ROOT / "dev.py").read_text(encoding="utf-8"))
    names = {node.names[0].name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import)}
    names |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names - allowed == {"pytest"}  # for type checkers only


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10"])
def test_an_old_python_gets_help_and_not_a_syntax_error(version: str) -> None:
    found = [path for path in dev.candidates_of_pyenv((version,)) if Path(path).exists()]
    if not found:
        pytest.skip(f"no Python {version} on this machine")
    done = subprocess.run([found[0], "dev.py", "--help"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: python3 dev.py COMMAND")


@pytest.mark.parametrize("arguments", [(), ("unknown",), ("check", "--fast"), ("--version",)])
def test_wrong_usage_ends_with_2(tree: Path, arguments: tuple[str, ...]) -> None:
    done = run(tree, *arguments)
    assert done.returncode == 2
    assert "dev.py" in done.stderr
    assert not (tree / ".venv").exists()


def test_help_names_the_commands_and_exit_codes(tree: Path) -> None:
    done = run(tree, "--help")
    assert done.returncode == 0
    assert "3 environment" in done.stdout
    assert "test" in done.stdout


def test_a_command_whose_code_is_not_in_the_tree_is_not_offered(tree: Path) -> None:
    done = run(tree, "demo")
    assert done.returncode == 2
    assert "unknown command 'demo'" in done.stderr
    assert "demo " not in run(tree, "--help").stdout.split("`dev.py")[0]


def test_every_command_that_is_offered_is_in_the_help_and_is_a_module_here() -> None:
    told = dev.usage()
    for name in set(dev.offered()) & set(dev.COMMANDS):
        assert f"\n  {name:<8} {dev.COMMANDS[name].help}" in told
        assert importlib.util.find_spec(dev.COMMANDS[name].module) is not None


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("simulate", ["--seeds", "0"]),
        ("simulate", ["--start", "-1"]),
        ("simulate", ["--seed", "1"]),
        ("chaos", ["--minutes", "0"]),
        ("chaos", ["--minutes", "1", "--sed", "1"]),
    ],
)
def test_the_proofs_refuse_a_wrong_option_with_2(command: str, wrong: list[str]) -> None:
    if command not in dev.offered():
        pytest.skip(f"this fork has no {command}")
    module = dev.COMMANDS[command].module
    done = subprocess.run(
        [sys.executable, "-m", module, *wrong], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: dev.py {command}")


@pytest.mark.skipif("simulate" not in dev.offered(), reason="this fork has no simulation")
def test_a_simulation_that_finds_nothing_ends_with_0() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "3", "--start", "11", "--rough"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "3 schedules, none with a violation" in done.stdout


# Finding Python


def test_without_a_fitting_python_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> Iterator[list[str]]:
        yield [str(tmp_path / "not-there")]
        yield [str(script(tmp_path / "old", "echo /usr/bin/old; echo 3.9.1"))]

    monkeypatch.setattr(dev, "candidates", none)
    assert dev.main(["test"]) == 3
    told = capsys.readouterr().err
    assert "Python 3.11, 3.12 or 3.13" in told
    assert "Install one:" in told


@posix_only
def test_a_python_without_venv_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = interpreter(tmp_path / "bare", "3.12.4", venv=False)
    monkeypatch.setattr(dev, "candidates", lambda: iter([[str(bare)]]))
    assert dev.main(["test"]) == 3
    told = capsys.readouterr().err
    assert "python3-venv" in told
    assert "python3.12-venv" in told


@posix_only
def test_a_python_with_venv_is_preferred_to_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = interpreter(tmp_path / "bare", "3.12.4", venv=False)
    whole = interpreter(tmp_path / "whole", "3.13.1", venv=True)
    monkeypatch.setattr(dev, "candidates", lambda: iter([[str(bare)], [str(whole)]]))
    assert dev.find_python() == dev.Python(str(whole), "3.13.1")


def test_the_python_that_runs_it_is_asked_first() -> None:
    assert next(dev.candidates())[0] in (sys.executable, getattr(sys, "_base_executable", ""))


# Making and repairing the environment


class Steps:
    """Notes which steps `prepare` takes, and takes them in no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, venv: Path) -> None:
        self.taken: list[str] = []
        self.python = dev.Python(sys.executable, "3.11.7")
        self.usable_as: str | None = None
        self.fails = False
        self.inside = venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        monkeypatch.setattr(dev, "find_python", lambda: self.python)
        monkeypatch.setattr(dev, "is_usable", lambda _inside, version: version == self.usable_as)
        monkeypatch.setattr(dev, "make_venv", self.make)
        monkeypatch.setattr(dev, "install", self.install)

    def make(self, python: dev.Python, venv: Path) -> None:
        shutil.rmtree(venv, ignore_errors=True)
        self.inside.parent.mkdir(parents=True)
        self.inside.write_text("", encoding="utf-8")
        self.usable_as = python.version
        self.taken.append("make")

    def install(self, _inside: Path, _requirements: Path) -> None:
        self.taken.append("install")
        if self.fails:
            raise dev.MissingError("pip could not install")

    def take(self, venv: Path, requirements: Path) -> list[str]:
        self.taken.clear()
        assert dev.prepare(venv, requirements) == self.inside
        return list(self.taken)


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Replace the slow steps."""
    (tmp_path / "requirements.txt").write_text("a==1\n", encoding="utf-8")
    return Steps(monkeypatch, tmp_path / ".venv")


def test_a_second_run_installs_nothing(steps: Steps, tmp_path: Path) -> None:
    venv, requirements = tmp_path / ".venv", tmp_path / "requirements.txt"
    assert steps.take(venv, requirements) == ["make", "install"]
    assert steps.take(venv, requirements) == []


def test_a_changed_requirements_file_reinstalls_into_the_same_environment(steps: Steps, tmp_path: Path) -> None:
    venv, requirements = tmp_path / ".venv", tmp_path / "requirements.txt"
    steps.take(venv, requirements)
    requirements.write_text("a==2\n", encoding="utf-8")
    assert steps.take(venv, requirements) == ["install"]
    assert steps.take(venv, requirements) == []


def test_another_python_makes_the_environment_anew(steps: Steps, tmp_path: Path) -> None:
    venv, requirements = tmp_path / ".venv", tmp_path / "requirements.txt"
    steps.take(venv, requirements)
    steps.python = dev.Python(sys.executable, "3.13.0")
    assert steps.take(venv, requirements) == ["make", "install"]


def test_a_failed_installation_is_done_again(steps: Steps, tmp_path: Path) -> None:
    venv, requirements = tmp_path / ".venv", tmp_path / "requirements.txt"
    steps.fails = True
    with pytest.raises(dev.MissingError):
        dev.prepare(venv, requirements)
    assert not (venv / dev.STAMP).exists()
    steps.fails = False
    assert steps.take(venv, requirements) == ["install"]


def test_a_reinstallation_that_fails_leaves_no_stamp_behind(steps: Steps, tmp_path: Path) -> None:
    venv, requirements = tmp_path / ".venv", tmp_path / "requirements.txt"
    steps.take(venv, requirements)
    old = requirements.read_text(encoding="utf-8")
    requirements.write_text("a==2\n", encoding="utf-8")
    steps.fails = True
    with pytest.raises(dev.MissingError):
        dev.prepare(venv, requirements)
    requirements.write_text(old, encoding="utf-8")  # back to what was complete, but half of the new one may be in
    steps.fails = False
    assert steps.take(venv, requirements) == ["install"]


def test_a_half_made_environment_is_made_anew(steps: Steps, tmp_path: Path) -> None:
    venv, requirements = tmp_path / ".venv", tmp_path / "requirements.txt"
    venv.mkdir()
    (venv / "pyvenv.cfg").write_text("", encoding="utf-8")
    assert steps.take(venv, requirements) == ["make", "install"]
    steps.inside.unlink()
    steps.usable_as = None
    assert steps.take(venv, requirements) == ["make", "install"]


@pytest.mark.parametrize(
    "named", [".", "..", "docs", "./", ".venv/..", "../elsewhere", "/", "venv", ".git", ".venv311", ".venv_x"]
)
def test_a_folder_that_is_not_its_own_is_refused_and_left(tree: Path, named: str) -> None:
    """What is unusable is removed, so a wrong name must never get that far."""
    (tree / "docs").mkdir()
    (tree / "docs" / "kept.md").write_text("kept", encoding="utf-8")
    done = run(tree, "test", DEV_VENV=named)
    assert done.returncode == dev.USAGE
    assert "DEV_VENV" in done.stderr
    assert (tree / "docs" / "kept.md").read_text(encoding="utf-8") == "kept"
    assert (tree / "dev.py").is_file()


def test_an_empty_name_is_the_usual_one(tree: Path) -> None:
    (tree / "kept.md").write_text("kept", encoding="utf-8")
    ready(tree)
    (tree / "tests" / "test_it.py").write_text("def test_a(): pass\n", encoding="utf-8")
    done = run(tree, "test", "-q", DEV_VENV="")
    assert done.returncode == 0, done.stderr
    assert (tree / "kept.md").is_file()


def test_a_folder_without_an_environment_in_it_is_never_removed(tmp_path: Path) -> None:
    venv = tmp_path / ".venv"
    venv.mkdir()
    (venv / "kept.md").write_text("kept", encoding="utf-8")
    with pytest.raises(dev.MissingError, match="something else"):
        dev.make_venv(dev.find_python(), venv)
    assert (venv / "kept.md").is_file()


def test_a_removal_that_was_interrupted_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tells that the folder is an environment goes last."""
    venv = tmp_path / ".venv"
    for name in ("lib", "zlib"):
        (venv / name).mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("", encoding="utf-8")
    real, calls = shutil.rmtree, 0

    def interrupted(path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        real(path)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dev.remove_venv(venv)
    assert (venv / "pyvenv.cfg").is_file()
    dev.remove_venv(venv)
    assert not venv.exists()
    dev.remove_venv(venv)  # none is as good


def test_an_environment_that_can_not_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv = tmp_path / ".venv"
    venv.mkdir()

    def held(path: str) -> None:
        raise PermissionError(13, "somebody holds it", path)

    monkeypatch.setattr(shutil, "rmtree", held)
    with pytest.raises(dev.MissingError, match=r"can't be removed: .*somebody holds it"):
        dev.remove_venv(venv)


@posix_only
def test_a_link_in_the_place_of_the_environment_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "pyvenv.cfg").write_text("", encoding="utf-8")
    (tmp_path / ".venv").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(dev.MissingError, match="no folder"):
        dev.make_venv(dev.find_python(), tmp_path / ".venv")
    assert (tmp_path / "elsewhere" / "pyvenv.cfg").is_file()


def test_a_missing_requirements_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(dev.MissingError, match=r"nothing\.txt is missing"):
        dev.prepare(tmp_path / ".venv", tmp_path / "nothing.txt")


def test_a_real_environment_shows_pips_last_lines_and_is_repaired(tree: Path) -> None:
    (tree / "requirements-dev.txt").write_text("no-such-package-here==1.0\n", encoding="utf-8")
    failed = run(tree, "test", PIP_NO_INDEX="1")
    assert failed.returncode == 3
    assert "making .venv with Python 3.1" in failed.stdout
    assert "its last lines:" in failed.stderr
    assert "no-such-package-here" in failed.stderr
    assert "Traceback" not in failed.stderr
    (tree / "requirements-dev.txt").write_text("# nothing\n", encoding="utf-8")
    repaired = run(tree, "test", PIP_NO_INDEX="1")
    assert "making" not in repaired.stdout
    assert "installing 0 packages" in repaired.stdout
    assert "No module named pytest" in repaired.stderr
    again = run(tree, "test", PIP_NO_INDEX="1")
    assert again.stdout == ""


# Running


@posix_only
def test_the_exit_code_and_the_arguments_are_the_commands(tree: Path) -> None:
    ready(tree)
    (tree / "tests" / "test_it.py").write_text("def test_a(): pass\ndef test_b(): assert 0\n", encoding="utf-8")
    assert run(tree, "test", "-q", "-k", "test_a").returncode == 0
    failed = run(tree, "test", "-q")
    assert failed.returncode == 1
    assert "1 failed, 1 passed" in failed.stdout


@posix_only
def test_a_table_is_shown_and_a_file_that_needs_something_is_listed_once(tree: Path) -> None:
    ready(tree)
    tests = {
        "test_shown.py": "def test_a(record_property): record_property('table', 'a title\\n  its row')\n",
        "test_left.py": "import pytest\npytest.skip('optional: a program', allow_module_level=True)\n",
    }
    for name, text in tests.items():
        (tree / "tests" / name).write_text(text, encoding="utf-8")
    done = run(tree, "test")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^=+ a title =+\n  its row$", done.stdout, re.MULTILINE)
    assert done.stdout.count("tests/test_left.py: a program") == 1


@posix_only
def test_a_ctrl_c_while_a_command_imports_is_130_and_no_traceback(tree: Path) -> None:
    ready(tree)
    (tree / "ops").mkdir()
    code = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n"
    (tree / "ops" / "__main__.py").write_text(code, encoding="utf-8")
    done = run(tree, "ops")
    assert (done.returncode, done.stderr) == (130, "")


@posix_only
def test_a_file_is_looked_for_where_the_caller_is(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    ready(tree)
    (tree / "local" / "demo").mkdir(parents=True)
    (tree / "local" / "demo" / "__main__.py").write_text("import sys; print(*sys.argv[1:])", encoding="utf-8")
    here = tmp_path_factory.mktemp("elsewhere")
    given = ["--input", "in.jsonl", "--json=out.json", "--seed", "7", "--input", "/in.jsonl", "--json=", "--input"]
    done = subprocess.run(
        [sys.executable, str(tree / "dev.py"), "demo", *given], cwd=here, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    wanted = ["--input", f"{here}/in.jsonl", f"--json={here}/out.json", "--seed", "7", "--input", "/in.jsonl"]
    assert done.stdout.split() == [*wanted, "--json=", "--input"], done.stderr


@posix_only
def test_check_prints_a_line_each_and_fails_with_any(tree: Path) -> None:
    ready(tree)
    (tree / "pyproject.toml").write_text('[tool.mypy]\nstrict = true\nfiles = ["code.py"]\n', encoding="utf-8")
    (tree / "code.py").write_text("import os\n", encoding="utf-8")
    (tree / "tests" / "unit").mkdir()
    (tree / "tests" / "unit" / "test_layers.py").write_text("def test_it(): pass\n", encoding="utf-8")
    failed = run(tree, "check")
    assert failed.returncode == 1
    lines = [text for text in failed.stdout.splitlines() if text.startswith(("ruff", "mypy", "layers"))]
    assert [text.split()[0] for text in lines] == ["ruff", "mypy", "layers"]
    assert "FAILED" in lines[0]
    assert " ok " in lines[2]
    assert "F401" in failed.stdout


@posix_only
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 128 + signal.SIGINT)]
)
def test_where_it_waits_for_a_child_it_passes_signals_on(number: signal.Signals, code: int) -> None:
    child = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print('up', flush=True); time.sleep(60)"
    parent = f"import dev, sys; sys.exit(dev.wait_for([sys.executable, '-c', {child!r}]))"
    with subprocess.Popen(
        [sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(timeout=20) == code


# What did not run


def pytest_with_plugin(tree: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (tree / "tests" / "test_skips.py").write_text(textwrap.dedent(text), encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if name != "CI"} | environment
    command: Sequence[str] = [sys.executable, "-m", "pytest", "-q", "-p", "dev", "tests"]
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=60, check=False)


MISSING = """
    import pytest
    def test_fine(): pass
    def test_browser(): pytest.skip("optional: Node is not installed")
    def test_probe(): pytest.skip("optional: beside the project: the .NET probe")
    def test_other(): pytest.skip("only on Windows")
"""


def test_what_did_not_run_is_listed_and_is_no_failure_at_home(tree: Path) -> None:
    done = pytest_with_plugin(tree, MISSING)
    assert done.returncode == 0
    assert "tests/test_skips.py::test_browser: Node is not installed" in done.stdout
    assert "tests/test_skips.py::test_probe: beside the project: the .NET probe" in done.stdout
    assert "test_other:" not in done.stdout
    assert done.stdout.strip().splitlines()[-1].startswith("1 passed, 3 skipped")


def test_with_ci_a_missing_program_is_a_failure(tree: Path) -> None:
    done = pytest_with_plugin(tree, MISSING, CI="true")
    assert done.returncode == 1
    assert "this counts as a failure" in done.stdout


def test_what_lies_beside_the_project_is_never_required(tree: Path) -> None:
    text = 'import pytest\npytest.skip("optional: beside the project: seeds", allow_module_level=True)\n'
    (tree / "tests" / "test_more.py").write_text(text, encoding="utf-8")
    done = pytest_with_plugin(tree, "def test_fine(): pass", CI="true")
    assert done.returncode == 0
    assert "beside the project: seeds" in done.stdout
