"""Tests of Ctrl-C at the start, and of standard streams that are closed, full, half read or of another encoding."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from balance.bench.campaign import same_code

# Raises SIGINT in the very moment in which a module is imported.
_INTERRUPTS = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000000): pass
import balance
sys.meta_path.insert(0, Finder())
from balance.cli import main
sys.exit(main(["problems"]))
"""


@pytest.mark.parametrize("module", ["balance.cli.app", "typer", "rich.console", "balance.cli.solving"])
def test_control_c_while_modules_are_imported(tmp_path: Path, module: str) -> None:
    """Ctrl-C before the first verb is one line and code 130, not a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTS],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**same_code(), "INTERRUPT_AT": module},
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def _shell(line: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("BALANCE", f"'{sys.executable}' -m balance")],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        cwd=cwd,
        env={**same_code(), **environment},
        timeout=60,
    )


needs_shell = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a shell and /dev/full")


@needs_shell
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("BALANCE problems chain | head -c 1 > /dev/null", (0, 1), ""),
        ("BALANCE formats --json | true", (0, 1), ""),
        ("BALANCE formats --json > /dev/full", (1,), "error: standard output cannot be written: No space left"),
        ("BALANCE formats > /dev/full", (1,), "error: standard output cannot be written: No space left"),
        ("BALANCE formats >&-", (0,), ""),
        ("BALANCE solve none.json 2>&-", (2,), ""),
    ],
)
def test_streams_that_do_not_take_it_all(tmp_path: Path, line: str, code: tuple[int, ...], says: str) -> None:
    """Nobody meets a traceback or a complaint of the interpreter."""
    done = _shell(line, tmp_path)
    assert done.returncode in code, done.stderr
    assert done.stderr.startswith(says)
    assert bool(done.stderr) == bool(says), done.stderr


@needs_shell
def test_a_closed_pipe_does_not_cost_the_file(graph: Path, tmp_path: Path) -> None:
    """What is to be saved is saved even if nobody reads the answer."""
    line = f"BALANCE solve '{graph}' -d 2 --bandwidth 1GB/s -q --save r.json --json | true"
    assert _shell(line, tmp_path).stderr.strip() in ("", "written to r.json")
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["status"] == "optimal"


@needs_shell
def test_names_that_the_encoding_lacks(graph: Path, tmp_path: Path) -> None:
    """A path that cannot be shown is shown escaped, and the work is done."""
    (tmp_path / "gräph ☃.json").write_bytes(graph.read_bytes())
    done = _shell("BALANCE convert 'gräph ☃.json' 'ö.json'", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\u2603" in done.stdout
    assert (tmp_path / "ö.json").exists()
    broken = os.fsencode(tmp_path) + b"/b\xff.json"
    with open(broken, "wb") as file:
        file.write(graph.read_bytes())
    done = _shell("BALANCE convert $'b\\xff.json' out.json", tmp_path)
    assert done.returncode == 0, done.stderr


def test_signals_are_as_they_were() -> None:
    """The command line leaves the handler of Ctrl-C alone."""
    before = signal.getsignal(signal.SIGINT)
    from balance.cli import main

    assert main(["formats", "--json"]) == 0
    assert signal.getsignal(signal.SIGINT) is before
