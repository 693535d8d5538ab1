"""Chain wing: an assignment MILP in PuLP, the independent second method for small chains.

It shares only the item sums with the dynamic programs; loads, communication, memory and order are linear constraints.
"""

from __future__ import annotations

import numpy as np

from balance.chain._milp_model import formulate
from balance.chain.reasons import reasons
from balance.chain.tables import ChainTables
from balance.limits import Run, StopReason
from balance.problems.chain import ChainProblem
from balance.problems.model.plan import Plan
from balance.registry import Outcome, Solver

BINARIES = 6_000


class Milp(Solver):
    """Exact: items to slots and slots to devices, solved by HiGHS; small chains only.

    Slots are counted from the end of the pipeline, so that slot u has u stages after it. Binaries x (item in slot), a
    (slot group on device), z = x a (linearised), and r (slot recomputes) where asked.
    """

    name = "milp"
    problem = ChainProblem
    exact = True
    proves_bound = True
    needs = ("pulp", "highspy")

    def accepts(self, problem: ChainProblem) -> str | None:
        """Refuse chains whose model would be too large to be solved."""
        tables = ChainTables(problem)
        p = problem.cluster.n_devices
        size = tables.n * min(p * problem.chunks, tables.n) * p
        if size > BINARIES:
            return f"its model would have about {size} binaries, more than {BINARIES}"
        if problem.routing == "direct" and problem.send == "each" and tables.forks and tables.spans:
            return "with send='each' and direct routing the number of receiving stages is not modelled"
        return None

    def rank(self, problem: ChainProblem) -> int:
        """Come last: the programs are faster wherever they apply."""
        return 9

    def solve(self, problem: ChainProblem, run: Run) -> Outcome:
        """Return the optimum of the model; with chunks, of one model per number of devices."""
        from balance.engines.highs import solve_model

        best: tuple[float, Plan] | None = None
        bound = np.inf
        reason = StopReason.finished
        rounds = _rounds(problem)
        for groups in rounds:
            if run.should_stop():
                bound = 0.0  # the models that are left are not bounded at all
                reason = run.stop_reason or StopReason.time_limit
                break
            model = formulate(problem, groups)
            answer = solve_model(model.problem, run)
            bound = min(bound, answer.bound)
            if answer.stop_reason != StopReason.finished:
                reason = answer.stop_reason
            if answer.values is not None:
                plan = model.plan(answer.values)
                value = problem.evaluate(plan).objective
                if best is None or value < best[0]:
                    best = (value, plan)
        stats = {"models": len(rounds)}
        if best is None and bound == np.inf:
            return Outcome(proved_infeasible=True, infeasible=reasons(problem), stats=stats)
        return Outcome(
            solution=None if best is None else best[1],
            bound=min(bound, best[0]) if best is not None else bound,
            bound_name="milp",
            stop_reason=reason,
            stats=stats,
        )


def _rounds(problem: ChainProblem) -> list[int]:
    """Return the numbers of devices to model: all at once without chunks, else one model for each that can run."""
    p, n = problem.cluster.n_devices, problem.linearisation.n_items
    if problem.chunks == 1:
        return [min(p, n)]
    most = min(p, n // problem.chunks)
    least = p if not problem.idle else 1
    return [count for count in range(least, most + 1) if problem.schedule_refusal(count * problem.chunks) is None]
