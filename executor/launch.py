"""Executor room: spawn the ranks of one machine, watch them, and end them whatever happens."""

from __future__ import annotations

import importlib.util
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import time
from collections.abc import Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NoReturn

from balance.executor.rank import Answer, RankOptions, main, rendezvous_folder
from balance.executor.sending import Job, pack
from balance.executor.status import WIDTH, Activity, Phase, StatusBoard
from balance.problems.model.errors import ExecutionError, MissingDependencyError, OptionError

# Importing torch on a loaded machine takes tens of seconds; a model's own work is never part of it.
START_SECONDS = 180.0
# After the first failure the others are given this long to speak, so that the culprit and not its victim is named.
GRACE_SECONDS = 1.0
_POLL_SECONDS = 0.2
_NAME = "dnn-balance rank"
_NO_GUARD = 86  # exit code of a rank whose script starts ranks while it is imported; no signal and no errno of Python


class Ranks:
    """Spawned processes, one per rank, joined by a process group and watched by this process.

    Use it as a context manager: when the block is left, normally, by an error or by Ctrl-C, every process is gone.
    Ranks also end by themselves when this process dies.

    Parameters
    ----------
    world_size
        Number of processes.
    device
        ``"cpu"`` (gloo) or ``"cuda"`` (nccl, rank r on ``devices[r]``); an index behind it is refused.
    devices
        Accelerator index of each rank; 0, 1, ... by default. Ignored on CPU.
    threads
        Threads of each rank's CPU operators.
    pin
        Keep rank r on the r-th of the available CPU cores (Linux, if there are enough).
    timeout
        Seconds for which no rank may go without finishing an action; after that the run ends with an error. It must
        be longer than the longest single action.
    seed
        Seed of torch's generators on the ranks; the rank number is added.

    Raises
    ------
    OptionError
        If an argument is out of range or the accelerators are missing.
    MissingDependencyError
        If torch is not installed.
    ExecutionError
        If a rank does not start.
    """

    def __init__(
        self,
        world_size: int,
        *,
        device: str = "cpu",
        devices: Sequence[int] | None = None,
        threads: int = 1,
        pin: bool = False,
        timeout: float = 60.0,
        seed: int = 0,
    ) -> None:
        if world_size < 1 or threads < 1:
            raise OptionError(f"ranks and threads are at least 1, got {world_size} ranks of {threads} threads")
        if not 0 < timeout < float("inf"):
            raise OptionError(f"timeout must be a positive number of seconds, got {timeout}")
        if importlib.util.find_spec("torch") is None:
            raise MissingDependencyError(
                "running plans needs PyTorch; install the extra 'executor': pip install 'dnn-balance[executor]'",
                extra="executor",
                package="torch",
            )
        if multiprocessing.current_process().name.startswith(_NAME):
            # A rank in the making imports the main script again and meets its call here: there is no way on, and the
            # parent, which sees the exit code, says what is wrong in one sentence.
            raise SystemExit(_NO_GUARD)
        self.world_size = world_size
        self.kind = device_kind(device)
        if device_index(device) is not None:
            raise OptionError(f"device {device!r} names one device for all ranks; give {self.kind!r} and devices=")
        self.timeout = timeout
        self.threads = threads
        self.devices = device_names(self.kind, world_size, devices)
        self._folder = rendezvous_folder()  # removed by _kill, or by the ranks if this process is killed
        context = multiprocessing.get_context("spawn")
        cells: Any = context.RawArray("d", WIDTH * world_size)
        self.board = StatusBoard(cells)
        for rank in range(world_size):
            self.board.mark(rank, Phase.STARTING)
        self._connections: list[Connection] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []
        cores = _cores(world_size) if pin and self.kind == "cpu" else None
        try:
            for rank in range(world_size):
                options = RankOptions(
                    rank=rank,
                    world_size=world_size,
                    device=self.devices[rank],
                    threads=threads,
                    core=cores[rank] if cores is not None else None,
                    rendezvous=os.path.join(self._folder.name, "store"),
                    group_timeout=max(2 * timeout, timeout + 60.0, START_SECONDS),
                    seed=seed,
                )
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=main, args=(options, theirs, cells), name=f"{_NAME} {rank}", daemon=True
                )
                self._connections.append(ours)
                self._processes.append(process)
                _start(process)
                theirs.close()
            self._gather(max(START_SECONDS, timeout))
        except BaseException:
            self._kill()
            raise

    def call(self, job: Job, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Run ``job(context, *arguments[rank])`` on every rank at once and return the results by rank.

        Parameters
        ----------
        job
            A function at the top level of a module.
        arguments
            One sequence per rank; sent by pickle over the rank's own pipe.

        Raises
        ------
        ExecutionError
            If a rank fails, dies, or no rank makes progress for `timeout` seconds; it carries rank, stage and action.
        """
        if not self._processes:
            raise ExecutionError("these ranks have ended; make new ones")
        if len(arguments) != self.world_size:
            raise OptionError(f"{self.world_size} ranks need as many rows of arguments, got {len(arguments)}")
        messages = [pack(job, row) for row in arguments]
        try:
            for rank, message in enumerate(messages):
                try:
                    self._connections[rank].send_bytes(message)
                except OSError:  # the rank is gone; _gather says so with its exit code
                    continue
            return self._gather(self.timeout)
        except BaseException:
            self._kill()
            raise

    # -- watching ----------------------------------------------------------------------------------------------

    def _gather(self, patience: float) -> list[Any]:
        answers: dict[int, Answer] = {}
        counters = self._counters()
        changed = time.monotonic()
        while len(answers) < self.world_size:
            pending = [rank for rank in range(self.world_size) if rank not in answers]
            self._collect(pending, answers, _POLL_SECONDS)
            if any(answer.error is not None for answer in answers.values()) or self._dead(answers):
                self._fail(answers)
            now = self._counters()
            if now != counters:
                counters, changed = now, time.monotonic()
            elif time.monotonic() - changed > patience:
                self._hang(answers, patience)
        return [answers[rank].value for rank in range(self.world_size)]

    def _collect(self, pending: list[int], answers: dict[int, Answer], seconds: float) -> None:
        handles: list[Any] = [self._connections[r] for r in pending] + [self._processes[r].sentinel for r in pending]
        multiprocessing.connection.wait(handles, seconds)
        for rank in pending:
            try:
                if self._connections[rank].poll():
                    answers[rank] = pickle.loads(self._connections[rank].recv_bytes())
            except (EOFError, OSError):
                continue  # the pipe of a dead rank; its exit code tells the rest

    def _dead(self, answers: dict[int, Answer]) -> list[int]:
        return [
            rank for rank, process in enumerate(self._processes) if rank not in answers and process.exitcode is not None
        ]

    def _counters(self) -> list[int]:
        return [self.board.read(rank).counter for rank in range(self.world_size)]

    def _activities(self) -> list[Activity]:
        return [self.board.read(rank) for rank in range(self.world_size)]

    def _fail(self, answers: dict[int, Answer]) -> NoReturn:
        seen = self._activities()
        until = time.monotonic() + GRACE_SECONDS
        while (left := until - time.monotonic()) > 0:
            pending = [r for r in range(self.world_size) if r not in answers and self._processes[r].exitcode is None]
            if not pending:
                break
            self._collect(pending, answers, min(left, _POLL_SECONDS))
        dead = self._dead(answers)
        if dead:
            rank = dead[0]
            code = self._processes[rank].exitcode or 0
            how = f"was killed by {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
            hint = " (the kernel kills a process when memory runs out)" if -code == signal.SIGKILL else ""
            if code > 0 and seen[rank].phase is Phase.STARTING:
                sure = code == _NO_GUARD
                why = "the script starts ranks while it is imported" if sure else "perhaps the script is not importable"
                hint = (
                    f": {why}; ranks import the main script again, so it must be a file, and what starts runs belongs "
                    f"under `if __name__ == '__main__':`"
                )
            self._raise(rank, seen[rank], f"rank {rank} {how} during {seen[rank]}{hint}", exit_code=code)
        failed = [rank for rank in sorted(answers) if answers[rank].error is not None]
        for rank in failed:
            seen[rank] = answers[rank].activity or seen[rank]
        # A rank that fails in its own work is the cause; broken connections elsewhere are its echo.
        rank = next((r for r in failed if seen[r].busy), failed[0])
        error = answers[rank].error or ""
        hint = ""
        if seen[rank].phase is Phase.PREPARING and error.startswith(("AttributeError: Can't get", "ModuleNotFound")):
            hint = "; ranks import what they are sent by name, so define it in a module that they can import"
        self._raise(
            rank,
            seen[rank],
            f"rank {rank} failed during {seen[rank]}: {error}{hint}",
            trace=answers[rank].trace,
        )

    def _hang(self, answers: dict[int, Answer], patience: float) -> NoReturn:
        seen = self._activities()
        pending = [rank for rank in range(self.world_size) if rank not in answers]
        rank = next((r for r in pending if seen[r].busy), pending[0])
        others = "; ".join(f"rank {r}: {seen[r]}" for r in pending if r != rank)
        self._raise(
            rank,
            seen[rank],
            f"no rank made progress for {patience:g} s; rank {rank} hangs in {seen[rank]}"
            + (f" (others: {others})" if others else "")
            + ". If one action really takes that long, give a larger timeout=",
            seconds=patience,
        )

    def _raise(self, rank: int, activity: Activity, message: str, **facts: Any) -> NoReturn:
        stage = activity.stage if activity.phase in (Phase.COMPUTING, Phase.WAITING, Phase.OPTIMIZING) else None
        self._kill()
        error = ExecutionError(message, rank=rank, stage=stage, action=activity.action, step=activity.step, **facts)
        if facts.get("trace"):
            error.add_note(f"traceback of rank {rank}:\n{facts['trace']}")
        raise error

    # -- ending ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the ranks; those that do not leave within a few seconds are killed."""
        for connection in self._connections:
            try:
                connection.send_bytes(pickle.dumps(None))
            except OSError:
                continue  # already gone
        until = time.monotonic() + 5.0
        for process in self._processes:
            process.join(max(until - time.monotonic(), 0.0))
        self._kill()

    def _kill(self) -> None:
        for process in self._processes:
            if process.pid is not None and process.exitcode is None:
                process.kill()
        for process in self._processes:
            if process.pid is not None:
                process.join()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []
        self._folder.cleanup()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._kill()


def device_kind(device: str) -> str:
    """Return ``"cpu"`` or ``"cuda"``.

    Raises
    ------
    OptionError
        For any other device.
    """
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and (kind == "cpu" or not index.isdecimal())) or device.endswith(":"):
        raise OptionError(f"device {device!r} is not supported; choose 'cpu', 'cuda' or 'cuda:' and a number")
    return kind


def device_index(device: str) -> int | None:
    """Return the number in a device such as ``"cuda:1"``, or None."""
    index = device.partition(":")[2]
    return int(index) if index else None


def device_names(kind: str, world_size: int, devices: Sequence[int] | None) -> list[str]:
    """Return the torch device of each rank; `devices` are the accelerator indices, 0, 1, ... by default.

    Raises
    ------
    OptionError
        If torch does not see these accelerators, or two ranks would share one.
    """
    if kind == "cpu":
        return ["cpu"] * world_size
    import torch

    indices = list(range(world_size)) if devices is None else [int(d) for d in devices]
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if len(indices) != world_size or len(set(indices)) != world_size:
        raise OptionError(f"{world_size} ranks need as many distinct CUDA devices, got {indices}")
    if max(indices) >= available:
        raise OptionError(
            f"CUDA device {max(indices)} is needed, but torch sees {available} of them; use device='cpu' or fewer ranks"
        )
    return [f"cuda:{index}" for index in indices]


def _start(process: multiprocessing.process.BaseProcess) -> None:
    """Start a rank that Ctrl-C does not reach: only this process answers it.

    Raises
    ------
    ExecutionError
        If the system starts no process, or none may be started from here.
    """
    masked = hasattr(signal, "pthread_sigmask")  # not on Windows
    before: set[int] = set()
    if masked:
        # Started here, since starting it from process.start() would unblock the signal again.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    except (OSError, RuntimeError, AssertionError) as error:  # multiprocessing asserts that no daemon has children
        raise ExecutionError(f"a rank could not be started: {error or type(error).__name__}") from error
    finally:
        if masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _cores(count: int) -> list[int] | None:
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return cores[:count] if len(cores) >= count else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
