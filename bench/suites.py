"""Bench room: suites, named selections of figures and of instances x solvers x seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from balance.bench.campaign import Cell
from balance.bench.discovery import list_specs
from balance.bench.instances import SkippedError, list_instances, problem_types
from balance.problems.model.errors import BalanceError, OptionError
from balance.problems.model.fields import nearest


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A selection of cells.

    Parameters
    ----------
    name
        What ``--suite`` takes.
    about
        One sentence.
    specs
        Prefix of the figures' names; None: none.
    size
        ``"full"`` or ``"smoke"``, of the figures.
    instances
        Prefixes of the instances' names.
    problems
        Problems to solve; empty: every problem that can be stated on an instance.
    solvers
        Solvers to run; empty: every one that can.
    seeds
        Seeds of solvers that draw random numbers; exact solvers run with the first only.
    time_limit
        Seconds per solve.
    """

    name: str
    about: str
    specs: str | None = None
    size: str = "full"
    instances: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    solvers: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    time_limit: float = 60.0


SUITES = (
    Suite(
        name="smoke",
        about="every figure at a small size and tiny instances with every solver: does it all still work",
        specs="",
        size="smoke",
        instances=("tiny/",),
        time_limit=3.0,
    ),
    Suite(name="speed", about="every figure at full size, against its target", specs=""),
    Suite(
        name="chain",
        about="the chain problem: figures, generated and public instances, every solver",
        specs="chain/",
        instances=("tiny/", "small/", "public/"),
        problems=("chain",),
        time_limit=60.0,
    ),
    Suite(
        name="cut",
        about="the cut problem: figures, public workloads and `auto` on them, a minute each",
        specs="cut/",
        instances=("public/throughput/",),
        problems=("cut",),
        solvers=("auto",),
        time_limit=60.0,
    ),
    Suite(
        name="regal",
        about="bound over objective of `auto` on seeded graphs, 2 to 64 devices, 20 seconds each",
        instances=("regal/",),
        problems=("cut",),
        solvers=("auto",),
        time_limit=20.0,
    ),
    Suite(
        name="paper",
        about="small and public instances, every problem and solver, 5 minutes each",
        instances=("small/", "public/"),
        seeds=(0, 1, 2),
        time_limit=300.0,
    ),
    Suite(
        name="full",
        about="everything: all figures, all instances, every problem and solver, 10 seeds, 20 minutes each",
        specs="",
        instances=("",),
        seeds=tuple(range(10)),
        time_limit=1200.0,
    ),
)


def find_suite(name: str) -> Suite:
    """Return the suite of a name.

    Raises
    ------
    OptionError
        If there is none; the message names the nearest.
    """
    known = {suite.name: suite for suite in SUITES}
    if name not in known:
        raise OptionError(f"there is no suite {name!r}{nearest(name, known)}")
    return known[name]


def cells(
    suite: Suite, *, threads: int = 1, time_limit: float | None = None, on_skip: Callable[[str], None] | None = None
) -> list[Cell]:
    """Return what a suite runs, in a fixed order.

    Parameters
    ----------
    suite
        The suite.
    threads
        Threads per solve.
    time_limit
        Seconds per solve, instead of the suite's.
    on_skip
        Told, in a sentence, why an instance is left out (a workload that is not on this machine, or is broken).
    """
    from balance import list_solvers

    found = [
        Cell(kind="measure", name=spec.name, size=suite.size, time_limit=120.0)
        for spec in (list_specs(suite.specs) if suite.specs is not None else ())
    ]
    limit = suite.time_limit if time_limit is None else time_limit
    wanted = [kind.name for kind in problem_types() if not suite.problems or kind.name in suite.problems]
    for instance in list_instances():
        if not instance.name.startswith(suite.instances or ("\0",)):
            continue
        try:
            stated = {name: instance.problem(name) for name in wanted}
        except BalanceError as why:  # a workload that is not there, or that is broken, does not stop the others
            if on_skip is not None:
                on_skip(str(why) if isinstance(why, SkippedError) else f"left out {instance.name}: {why}")
            continue
        for name, problem in stated.items():
            able = () if problem is None else list_solvers(problem)
            chosen = [(name, False) for name in suite.solvers] if suite.solvers and able else []
            for solver, exact in chosen or [(each.name, each.exact) for each in able]:
                for seed in suite.seeds[:1] if exact else suite.seeds:
                    found.append(
                        Cell(
                            kind="solve",
                            name=instance.name,
                            problem=name,
                            solver=solver,
                            seed=seed,
                            time_limit=limit,
                            threads=threads,
                        )
                    )
    return found
