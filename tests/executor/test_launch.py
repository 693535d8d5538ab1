"""Ranks that die, hang or fail are named within the stated time, and no process is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.nn.functional import mse_loss
from unusual import Dies, Hangs, Raises

from balance.executor import Ranks, run
from balance.executor.launch import GRACE_SECONDS, device_kind
from balance.executor.status import WIDTH, Phase, StatusBoard
from balance.problems.model.errors import ExecutionError, OptionError
from balance.problems.model.plan import Plan

TIMEOUT = 3.0


def children() -> set[int | None]:
    """Return the process numbers of this process's living children."""
    return {process.pid for process in multiprocessing.active_children()}


def run_with(breaker: torch.nn.Module) -> ExecutionError:
    """Run a two-stage pipeline whose second stage breaks in its second step, and return the error."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), breaker)
    plan = Plan.chain([0, 1, 3], microbatches=4)
    before = children()
    with pytest.raises(ExecutionError) as caught:
        run(plan, model, torch.zeros(8, 4), torch.zeros(8, 4), loss_fn=mse_loss, steps=4, timeout=TIMEOUT)
    assert children() == before
    return caught.value


def test_dead_rank_is_named():
    """A rank that exits is named with its exit code, stage, action and step."""
    error = run_with(Dies(6))
    assert (error.rank, error.stage, error.action, error.facts["step"]) == (1, 1, "1F1", 1)
    assert "rank 1 exited with code 7 during forward of micro-batch 1 in stage 1 (step 1)" in str(error)


def test_hanging_rank_is_named_in_time():
    """A rank that sleeps is told from the one that waits for it, within the stated time."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), Hangs(6))
    plan = Plan.chain([0, 1, 3], microbatches=4)
    before = children()
    with Ranks(2, timeout=TIMEOUT) as ranks:
        began = time.monotonic()
        with pytest.raises(ExecutionError, match="no rank made progress for 3 s; rank 1 hangs in forward") as caught:
            run(plan, model, torch.zeros(8, 4), torch.zeros(8, 4), loss_fn=mse_loss, steps=4, ranks=ranks)
        # The work before the hang takes milliseconds; the rest of the margin is for a loaded machine.
        assert time.monotonic() - began < TIMEOUT + GRACE_SECONDS + 5.0
        assert (caught.value.rank, caught.value.stage, caught.value.action) == (1, 1, "1F1")
        assert "rank 0: waiting for messages" in str(caught.value)
        with pytest.raises(ExecutionError, match="have ended"):
            ranks.call(print, [(), ()])
    assert children() == before


def test_failing_rank_is_named_with_its_error():
    """An exception inside a stage comes back with its text, which neither torch, its own cause nor an echo hides."""
    error = run_with(Raises(6))
    assert (error.rank, error.action) == (1, "1F1")
    assert "LookupError: broken on purpose" in str(error)
    assert "unusual.py" in error.facts["trace"]


SCRIPT = """
import time
from balance.executor import Ranks

def forever(context):
    time.sleep(600)

if __name__ == "__main__":
    with Ranks(1) as ranks:
        print(ranks._processes[0].pid, flush=True)
        ranks.call(forever, [()])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_ranks_end_with_their_parent(number, tmp_path):
    """When the parent is killed outright, or interrupted by Ctrl-C, its ranks go away."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(tmp_path),
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(number)
    until = time.monotonic() + 10
    # The last rank that ends removes the rendezvous folder.
    while (_alive(child) or len(list(tmp_path.iterdir())) > 1) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(child)
    assert parent.returncode == -number
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]  # no rendezvous folder is left


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which scripts find the package and leave temporary files in a folder of their own."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder)}


def test_ctrl_c_reaches_the_parent_alone(tmp_path):
    """An interrupt of the whole terminal while ranks start gives one traceback, the parent's, and leaves nothing."""
    script = tmp_path / "script.py"
    script.write_text(
        "import threading, time\n"
        "from balance.executor import Ranks, launch\n"
        "if __name__ == '__main__':\n"
        "    import multiprocessing\n"
        "    def tell():\n"
        "        while len(multiprocessing.active_children()) < 2:\n"
        "            time.sleep(0.01)\n"
        "        print('started', flush=True)\n"
        "    threading.Thread(target=tell, daemon=True).start()\n"
        "    Ranks(2)\n",
        encoding="utf-8",
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        assert parent.stdout.readline() == "started\n"
        os.killpg(parent.pid, signal.SIGINT)
        shown = parent.stderr.read()
    assert parent.returncode == -signal.SIGINT
    assert shown.count("Traceback") == 1, shown
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_script_without_a_guard_is_told(tmp_path):
    """A script that starts ranks while it is imported gives one traceback, whose message says what to do."""
    script = tmp_path / "script.py"
    script.write_text("from balance.executor import Ranks\nRanks(2)\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment(tmp_path), check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert "the script starts ranks while it is imported; ranks import the main script again" in done.stderr
    assert "`if __name__ == '__main__':`" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_a_device_for_all_ranks_is_refused():
    """An index that would be ignored is refused, and a malformed one is no traceback."""
    with pytest.raises(OptionError, match="names one device for all ranks"):
        Ranks(2, device="cuda:1")
    for bad in ("cuda:", "cuda:x", "cpu:0", "tpu"):
        with pytest.raises(OptionError, match="is not supported"):
            device_kind(bad)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] == "Z")


def test_what_cannot_be_sent_is_named(one_rank):
    """A lambda cannot travel to a rank; the message says what to do and the rank lives on."""
    with pytest.raises(ExecutionError, match="top level of an importable module"):
        one_rank.call(lambda context: None, [()])
    with pytest.raises(OptionError, match="1 ranks need as many rows of arguments, got 2"):
        one_rank.call(str, [(), ()])
    assert one_rank.call(str, [()])[0].startswith("Context(rank=0")


@pytest.mark.parametrize(
    "options", [{"world_size": 0}, {"world_size": 1, "timeout": 0.0}, {"world_size": 1, "threads": 0}]
)
def test_bad_options_are_refused(options):
    """Nothing starts with options out of range."""
    with pytest.raises(OptionError):
        Ranks(**options)


def test_status_words():
    """The board says what a rank does in words and in schedule notation."""
    board = StatusBoard([0.0] * (2 * WIDTH))
    board.mark(0, Phase.STARTING)
    board.mark(1, Phase.COMPUTING, stage=1, kind=1, microbatch=3, step=4)
    busy = board.read(1)
    assert (str(busy), busy.action, busy.busy, busy.counter) == (
        "backward of micro-batch 3 in stage 1 (step 4)", "1B3", True, 1,
    )  # fmt: skip
    board.mark(1, Phase.WAITING, stage=1, kind=1, microbatch=3, step=4)
    assert str(board.read(1)).startswith("waiting for messages after the backward")
    assert not board.read(1).busy
    assert str(board.read(0)) == "starting Python and importing torch"
