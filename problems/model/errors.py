"""Model room: the one tree of errors that this package raises on purpose."""

from __future__ import annotations

from typing import Any


class BalanceError(Exception):
    """Base of every error that this package raises on purpose.

    Parameters
    ----------
    message
        What is wrong, where, and what to change.
    **facts
        The numbers and names behind the message (which operator, which device, needed, available), kept in
        `facts` so that programs need not parse the text.
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts: dict[str, Any] = facts

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The default rebuilds from `args` and would lose the facts of subclasses with their own signature.
        return (_rebuild, (type(self), self.message, self.__dict__.copy()))


def _rebuild(kind: type[BalanceError], message: str, state: dict[str, Any]) -> BalanceError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class GraphError(BalanceError, ValueError):
    """A cost graph that breaks a rule of the model: a cycle, a dangling reference, a bad cost."""


class ClusterError(BalanceError, ValueError):
    """A cluster that breaks a rule of the model, or has no link where one is needed."""


class PlanError(BalanceError, ValueError):
    """A plan or assignment that does not fit the graph or the cluster it is used with."""


class ScheduleError(BalanceError, ValueError):
    """A schedule with missing, doubled or deadlocked work."""


class ProblemError(BalanceError, ValueError):
    """Arguments that do not state a problem, or a problem that a method cannot express."""


class LinearisationError(ProblemError):
    """A graph that is not a chain, asked of a chain problem."""


class OptionError(BalanceError, ValueError):
    """An unknown option or value; the message names the nearest known one."""


class FormatError(BalanceError, ValueError):
    """A file that cannot be read.

    Parameters
    ----------
    message
        What is wrong.
    path
        The file, if it came from one.
    line
        Line number, counted from 1, in line-oriented formats.
    field
        The field (a path such as ``nodes[3].size``) in structured formats.
    """

    def __init__(
        self, message: str, *, path: str | None = None, line: int | None = None, field: str | None = None, **facts: Any
    ) -> None:
        where = [part for part in (path, f"line {line}" if line is not None else None, field) if part]
        super().__init__(": ".join([", ".join(where), message]) if where else message, **facts)
        self.reason = message
        self.path = path
        self.line = line
        self.field = field


class SolverNotFoundError(BalanceError, LookupError):
    """No registered solver has this name, or none can answer this problem."""


class MissingDependencyError(BalanceError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class SolverError(BalanceError, RuntimeError):
    """A solver failed, or returned an answer that the problem's own evaluator rejects."""


class ExecutionError(BalanceError, RuntimeError):
    """A run on devices failed.

    Parameters
    ----------
    message
        What happened.
    rank, stage, action
        Where it happened, as far as known.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int | None = None,
        stage: int | None = None,
        action: str | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, **facts)
        self.rank = rank
        self.stage = stage
        self.action = action
