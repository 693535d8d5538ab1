"""Tests of what people read when something goes wrong, and of exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from balance.bench.campaign import same_code
from balance.cli import errors, main
from balance.problems.model.errors import (
    BalanceError,
    ExecutionError,
    FormatError,
    MissingDependencyError,
    OptionError,
    SolverError,
    SolverNotFoundError,
)

Command = Any  # the fixture of conftest.py


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FormatError("is broken", path="a.json"), 2),
        (OptionError("no"), 2),
        (SolverNotFoundError("none"), 2),
        (BalanceError("no"), 2),
        (SolverError("lied"), 1),
        (ExecutionError("rank 1 died", rank=1), 1),
        (MissingDependencyError("needs torch"), 1),
        (FileNotFoundError(2, "No such file or directory", "x.json"), 2),
        (MemoryError(), 1),
        (RuntimeError("odd"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_exception_becomes_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    """Whatever a verb raises, people get one paragraph on standard error and programs an exit code."""

    def raises() -> None:
        raise error

    monkeypatch.setattr("balance.cli.doctor.examine", raises)
    assert main(["doctor"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert captured.err.lstrip().startswith("error: ")
    if type(error) is RuntimeError:
        assert "internal error, RuntimeError: odd" in captured.err


def test_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """--traceback lets the exception through, before the verb only."""

    def raises() -> None:
        raise OptionError("no")

    monkeypatch.setattr("balance.cli.doctor.examine", raises)
    with pytest.raises(OptionError):
        main(["--traceback", "doctor"])


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "give bandwidth= (bytes per second) and latency= too",
            "give --bandwidth (bytes per second) and --latency too",
        ),
        ("chunks=2 with schedule='1f1b'", "chunks=2 with schedule='1f1b'"),
        ("choose one with format=)", "choose one with --format)"),
        ("needs --set hidden=...", "needs --set hidden=..."),
        ("or a Cluster with link=", "or a Cluster with link="),
    ],
)
def test_arguments_are_shown_as_options(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], message: str, shown: str
) -> None:
    """Advice of the library that names an argument names the option here."""

    def raises() -> None:
        raise OptionError(message)

    monkeypatch.setattr("balance.cli.doctor.examine", raises)
    assert main(["doctor"]) == 2
    assert capsys.readouterr().err == f"error: {shown}\n"


def test_codes_are_the_documented_ones() -> None:
    """The numbers are part of the interface."""
    assert {code.name: int(code) for code in errors.Code} == {
        "DONE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "INFEASIBLE": 3,
        "NOTHING_FOUND": 4,
        "INTERRUPTED": 130,
    }


def test_help_of_every_verb(command: Command) -> None:
    """Each verb of the design is there and explains itself."""
    page = command("--help").stdout
    verbs = "solve check bound compare convert generate simulate plot profile run bench problems solvers formats doctor"
    for verb in verbs.split():
        assert verb in page
        assert command(verb, "--help").exit_code == 0


def _process(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "balance", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=same_code(),
        timeout=120,
    )


def test_a_real_process_keeps_standard_output_clean(graph: Path, tmp_path: Path) -> None:
    """In a fresh process nothing that a solver library prints reaches standard output under --json."""
    link = ("--bandwidth", "10GB/s", "--latency", "1us")
    done = _process("solve", str(graph), "-d", "2", *link, "--solver", "milp", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "optimal"
    assert "Traceback" not in done.stderr


def test_a_real_process_ends_with_the_code(tmp_path: Path) -> None:
    """The exit code reaches the shell."""
    done = _process("solve", "none.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.json" in done.stderr
