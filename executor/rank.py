"""Executor room: the life of one spawned rank: connect, obey the parent, report, leave no trace."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import tempfile
import threading
import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from balance.executor.status import Activity, Phase, StatusBoard


@dataclass(frozen=True)
class RankOptions:
    """What a rank is told when it is spawned.

    Parameters
    ----------
    rank, world_size
        Its number and how many there are.
    device
        ``"cpu"`` or ``"cuda:k"``.
    threads
        Threads of the rank's CPU operators.
    core
        CPU core to stay on, or None.
    rendezvous
        Path of the file store through which the ranks find each other.
    group_timeout
        Seconds after which a collective of the process group gives up; longer than the watchdog's patience, so that
        the watchdog speaks first.
    seed
        Seed of torch's generators; the rank number is added.
    """

    rank: int
    world_size: int
    device: str
    threads: int
    core: int | None
    rendezvous: str
    group_timeout: float
    seed: int


@dataclass
class Context:
    """What a job sees of its rank.

    Parameters
    ----------
    rank, world_size, device
        As in `RankOptions`.
    board
        Where it says what it is doing.
    store
        Objects that stay from one job to the next.
    """

    rank: int
    world_size: int
    device: str
    board: StatusBoard
    store: dict[str, Any] = field(default_factory=dict)

    def mark(
        self,
        phase: Phase,
        *,
        stage: int | None = None,
        kind: int | None = None,
        microbatch: int | None = None,
        step: int | None = None,
    ) -> None:
        """Say what this rank does from now on."""
        self.board.mark(self.rank, phase, stage=stage, kind=kind, microbatch=microbatch, step=step)

    def barrier(self) -> None:
        """Wait until every rank is here."""
        import torch.distributed as dist

        if self.world_size > 1:
            if self.device.startswith("cuda"):
                dist.barrier(device_ids=[int(self.device.split(":")[1])])
            else:
                dist.barrier()


@dataclass(frozen=True)
class Answer:
    """What a rank sends back for one job.

    Parameters
    ----------
    value
        Result of the job.
    error
        ``"Type: message"`` if it failed.
    trace
        Traceback text if it failed.
    activity
        What the rank was doing when it failed.
    """

    value: Any = None
    error: str | None = None
    trace: str | None = None
    activity: Activity | None = None


def main(options: RankOptions, connection: Connection, cells: Any) -> None:
    """Run one rank until the parent sends None or goes away."""
    # Ctrl-C reaches every process of the terminal; the parent alone answers it and ends its ranks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, args=(options.rendezvous,), daemon=True).start()
    context = Context(options.rank, options.world_size, options.device, StatusBoard(cells))
    context.mark(Phase.STARTING)
    try:
        _connect(options, context)
        connection.send_bytes(pickle.dumps(Answer()))
    except Exception as error:  # whatever stops the start must reach the parent, which names the rank
        _send_error(connection, error, context)
        return
    while True:
        context.mark(Phase.IDLE)
        try:
            data = connection.recv_bytes()
        except (EOFError, OSError):
            return
        context.mark(Phase.PREPARING)
        try:
            # The bytes come from the parent over an anonymous pipe, never from a file.
            job = pickle.loads(data)
            if job is None:
                break
            function, arguments = job
            value = function(context, *arguments)
            connection.send_bytes(pickle.dumps(Answer(value), protocol=pickle.HIGHEST_PROTOCOL))
        except Exception as error:  # user code runs here: any failure is reported with its place, not swallowed
            _send_error(connection, error, context)
    _disconnect()
    context.mark(Phase.FINISHED)


def _send_error(connection: Connection, error: BaseException, context: Context) -> None:
    root = _origin(error)
    activity = context.board.read(context.rank)
    answer = Answer(None, f"{type(root).__name__}: {root}", "".join(traceback.format_exception(error)), activity)
    connection.send_bytes(pickle.dumps(answer))


def _origin(error: BaseException) -> BaseException:
    """Return what a stage raised, out of the errors that torch wraps around it; a user's own causes stay inside."""
    home = os.path.join("torch", "distributed", "pipelining")
    while error.__cause__ is not None and error.__traceback__ is not None:
        last = traceback.extract_tb(error.__traceback__)[-1].filename
        if home not in last:
            break
        error = error.__cause__
    return error


def _die_with_parent(rendezvous: str) -> None:
    """End this process when the parent is gone, which then could not remove the folder of the file store."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        shutil.rmtree(os.path.dirname(rendezvous), ignore_errors=True)
        os._exit(1)


def _connect(options: RankOptions, context: Context) -> None:
    if options.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.core})
    # Ranks of one machine talk over loopback whatever the host's name resolves to; a user's choice is kept.
    loopback = "lo" if os.path.exists("/sys/class/net/lo") else "lo0"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    import torch
    import torch.distributed as dist

    # Imported while the start's patience holds, not while a first job is awaited.
    import balance.executor.runner  # noqa: F401

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed + options.rank)
    cuda = options.device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(torch.device(options.device))
    context.mark(Phase.CONNECTING)
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=f"file://{options.rendezvous}",
        rank=options.rank,
        world_size=options.world_size,
        timeout=timedelta(seconds=options.group_timeout),
    )


def _disconnect() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def rendezvous_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a private folder for the file store; only this user can write there."""
    return tempfile.TemporaryDirectory(prefix="dnn-balance-ranks-")
