"""Cut wing: named lower bounds, each with its proof.

Cheap ones run ahead of every solver; the others are computed when they are asked for by name:
``lower_bounds(problem, names=["node-guess"])``. What holds for the largest load also holds for ``fw-bw-bottleneck``:
the sum of the largest forward and the largest backward load is at least the sum of both on any one device. Memory,
pins, the number of stages and the order of blocks only take solutions away, so a bound may ignore them.
"""

from __future__ import annotations

import math
from fractions import Fraction

from balance.cut._shares import Work, average_load, crowded, most_devices
from balance.cut.tables import BACKWARD, FORWARD, CutTables
from balance.limits import Part, Run
from balance.problems.cut import CutProblem
from balance.registry import bound

CELLS = 20_000
"""Blocks times types; above, no prices are looked for."""

ROWS = 20_000
"""Pins of nets, times types; above, no mixed-integer model is built."""


@bound(problem=CutProblem, name="largest")
def largest(problem: CutProblem) -> float:
    """Return the largest block on the device where it is fastest; by phases for ``fw-bw-bottleneck``.

    Proof: some device holds the block, and its load is at least the block's own time there. The largest forward and the
    largest backward load may be those of two blocks.
    """
    work = Work.of(problem)
    value = float(work.total.min(axis=0).max())
    if problem.objective == "fw-bw-bottleneck":
        value = max(value, float(work.seconds.min(axis=0).max(axis=1).sum()))
    return value * work.slack


@bound(problem=CutProblem, name="pigeonhole")
def pigeonhole(problem: CutProblem) -> float:
    """Return what comes together when large blocks outnumber the devices: among k + 1 blocks two share a device.

    Proof: let each block take its least seconds over the devices. Of the r k + 1 largest blocks, some device of the k
    that may be used holds r + 1, and these take at least as long as the r + 1 smallest of them. The bound is the
    largest such sum over r.
    """
    work = Work.of(problem)
    return crowded(work, most_devices(problem, work.seconds.shape[2]))


@bound(problem=CutProblem, name="average")
def average(problem: CutProblem) -> float:
    r"""Return the fair share of the work, with the least communication that dividing it costs.

    Proof. Weigh device d by a positive a_d. Over the devices U that are used, :math:`\sum_{d \in U} a_d f_d \le T
    \sum_{d \in U} a_d`, and every block adds at least :math:`\min_d a_d w_d` to the left: A in all. Equal weights serve
    equal devices; else a_d is the inverse of the device's speed on all blocks together. With at most k devices U weighs
    at most the k largest a_d.

    Communication: let h be the lightest edge of the heaviest spanning tree of the tensors (0 if they do not connect all
    blocks). A device with some blocks, but not all, cuts a tensor of that tree and pays at least h if it pays at all.
    So either one device holds everything, and T is at least the least total time W_1 of all blocks on one device, or
    every device in U that pays has h on top. If all pay: :math:`T \ge \min(W_1, A / \sum a + h)`. If some do not, let
    the used ones weigh P and F at most: T is at least :math:`(A + h P') / (P' + F)` for some P' up to P, which is
    monotone in P': :math:`T \ge \min(W_1, A / F, (A + h P) / (P + F))`. With ``overlap="max"``, h counts as 0.

    Overflow: all devices together stream at least the bytes beyond all memories, with the fewest micro-batches in
    flight; they are added to A, times the least a_d.
    """
    return average_load(problem, Work.of(problem))


def _node_cut_holds(problem: CutProblem, value: float) -> bool:
    """Whether the winning least cuts reach a value in exact rationals."""
    from balance.cut._node_cut import BOTH, highest, prove_node_cut

    def proved(phases: tuple[int, ...]) -> Fraction:
        peak = highest(CutTables.of(problem), phases)
        return Fraction(0) if peak is None else prove_node_cut(problem, peak.block, phases).seconds

    best = proved(BOTH)
    if problem.objective == "fw-bw-bottleneck":
        best = max(best, proved((FORWARD,)) + proved((BACKWARD,)))
    return best >= Fraction(value)


@bound(problem=CutProblem, name="node-cut", prove=_node_cut_holds)
def node_cut(problem: CutProblem) -> float:
    r"""Return the largest, over blocks v, of the least load of any set of blocks that holds v.

    Proof: some device d holds v, with the set S of blocks; :math:`T \ge f_d(S) \ge w_d(S) + c(S)` where c(S) weighs
    every tensor with blocks both in S and outside (for ``send="each"``, ``routing="adjacent"`` a device pays such a
    tensor at least once, else exactly once), or nothing on a device that does not pay. The least value over all S that
    hold v and no block that d's type bars is a minimum cut on the Lawler expansion of the hypergraph (work as arcs to
    the sink, v as source), for every type of device; the smallest of them is below T, whichever device it is. With
    ``overlap="max"`` the largest of work, received and sent is at least a third of their sum. For ``fw-bw-bottleneck``
    the argument holds for each phase, with blocks of their own, and the two values add up.

    Cuts are exact in 64-bit integers. Blocks are tried by decreasing cost alone; those in a cut that was found have no
    larger value and are passed over. In huge graphs the scan ends early: the maximum over fewer blocks is still a
    bound. `prove_node_cut` proves one block's value again in rationals.
    """
    from balance.cut._node_cut import highest

    tables = CutTables.of(problem)
    peak = highest(tables)
    if peak is None:
        return math.inf
    share = 3.0 if problem.overlap == "max" else 1.0
    value = tables.bound(peak.value) / share
    if problem.objective == "fw-bw-bottleneck":
        phases = [highest(tables, (phase,)) for phase in (FORWARD, BACKWARD)]
        value = max(value, sum(tables.bound(each.value) for each in phases if each is not None) / share)
    return value * (1.0 - 1e-12)


@bound(problem=CutProblem, name="assignment-lp")
def assignment_lp(problem: CutProblem) -> float:
    r"""Return the value of sharing out blocks in fractions over devices that differ, memory included.

    Proof. Let :math:`a_q \ge 0` be prices of a second and :math:`s_q \ge 0` of a byte on the n_q devices of type q. In
    a solution, the seconds of all devices cost at most :math:`T \sum_q n_q a_q` and their bytes at most :math:`\sum_q
    n_q s_q M_q`, and block v costs at least :math:`m_v = \min_q (a_q w_{vq} + s_q b_v)` over the types that can hold
    it, with the fewest micro-batches in flight. So :math:`T \ge (\sum_v m_v - \sum_q n_q s_q M_q) / \sum_q n_q a_q`
    for any prices. The best ones are the dual of the assignment LP; whatever HiGHS says of them, the bound is computed
    from this formula.

    Bisection: for any threshold t, either T is at least t, or no block lies on a device whose load, with this block, is
    t or more, so that those pairs are left out of the minima (Lenstra, Shmoys and Tardos 1990): T is at least the
    smaller of t and that value. The least load of a device of one type with a block is its minimum cut (`node_cut`).
    Applies where types differ; large problems are left out.
    """
    if int(problem.classes.max()) >= CELLS:
        return -math.inf  # before the tables of a huge graph are made
    tables = CutTables.of(problem)
    if tables.n_types == 1 or tables.n * tables.n_types > CELLS:
        return -math.inf
    if tables.barred.all(axis=0).any():
        return math.inf
    from balance.cut._assignment import assignment_bound

    return assignment_bound(tables, Run(threads=1))


# -- expensive: mixed-integer models -----------------------------------------------------------------------------------


def _too_large(tables: CutTables) -> bool:
    return (len(tables.nets.pins) + tables.n) * tables.n_types > ROWS or bool(tables.barred.all(axis=0).any())


def _known(problem: CutProblem) -> float:
    """Return the best of the cheap bounds."""
    return max(0.0, *(each(problem) for each in (largest, pigeonhole, average, node_cut, assignment_lp)))


@bound(problem=CutProblem, name="bottleneck-block", seconds=60.0, in_ladder=True)
def bottleneck_block(problem: CutProblem, run: Run) -> float:
    r"""Return the least load of a stage that has at least the fair share of the work.

    Proof: if the work of every used device were below the fair share :math:`A / \sum a` (see `average`, without
    communication), the weighted sum of their works would be below A, which it is not. So on some type of device there
    is a set S with :math:`w_q(S) \ge A / \sum a` that is convex (if the problem asks for it), holds no block that is
    barred there and fits its memory with the fewest micro-batches in flight; T is at least its load. One mixed-integer
    model per type; the smallest of their dual bounds holds at any time limit. After Archer et al. 2024.
    """
    from balance.cut._block_models import bottleneck_block as solved

    tables = CutTables.of(problem)
    return -math.inf if _too_large(tables) else solved(tables, run)


@bound(problem=CutProblem, name="three-super-blocks", seconds=60.0, in_ladder=True)
def three_super_blocks(problem: CutProblem, run: Run) -> float:
    r"""Return the least bottleneck when the stages before and after the one with most work are treated as one each.

    Proof. Let each block take its least work over the types, and let stage b of k have most: :math:`w(S_2) \ge W / k`.
    The b - 1 stages before it, together S_1, have :math:`w(S_1) \le (b - 1) w(S_2)`, and the sum of their loads, at
    most (b - 1) T, is at least :math:`w(S_1) + c(S_1)`: a tensor cut by S_1 has a block in some stage of it, which pays
    it. The same holds for the k - b stages after it. What lies before S_2, and what lies before its end, are down-sets.
    One mixed-integer model per b; T is at least the smallest of their values, so the smallest of their dual bounds
    holds at any time limit. Communication counts if all types pay. A third of the time goes to ``bottleneck-block``,
    whose value is a floor under all k. Pipelines only. After Archer et al. 2024.
    """
    from balance.cut._block_models import bottleneck_block as single
    from balance.cut._block_models import super_blocks

    tables = CutTables.of(problem)
    if problem.contiguity != "acyclic" or _too_large(tables):
        return -math.inf
    floor = max(_known(problem), single(tables, Part(run, 3)))
    return floor if floor == math.inf else super_blocks(tables, run, floor)


@bound(problem=CutProblem, name="node-guess", seconds=60.0, in_ladder=True)
def node_guess(problem: CutProblem, run: Run) -> float:
    """Return the largest, over blocks v, of the least load of a convex stage that holds v.

    Proof: as for ``node-cut``, but the set must also be a difference of two down-sets, as every stage is, and fit the
    memory of its device with the fewest micro-batches in flight. One mixed-integer model per block and type, by
    decreasing cost alone; each dual bound holds at any time limit, and so does the largest over the blocks that were
    reached. Without an order of blocks only the memory would be new.
    """
    from balance.cut._block_models import node_guess as solved

    tables = CutTables.of(problem)
    if _too_large(tables):
        return -math.inf
    return solved(tables, run, _known(problem))


@bound(problem=CutProblem, name="balanced-cut", seconds=60.0, in_ladder=True)
def balanced_cut(problem: CutProblem, run: Run) -> float:
    r"""Return the fair share with the least communication of a set of blocks that carries its share.

    Proof. Let K devices pay (at most as many as may be used), and let free devices of type q weigh :math:`a_q`, F in
    all; :math:`m_v` is the least of block v's time on a device that pays and :math:`a_q w_{vq}`, and A their sum. Then
    :math:`A + \sum_b c(S_b) \le (K + F) T`, summed over the paying devices. If a paying device is idle, :math:`A \le
    (K - 1 + F) T`. Else let S be the set of the paying device with the least communication: :math:`A + K c(S) \le (K +
    F) T`, and because each of the others has at most :math:`T - c(S)` of work, :math:`m(S) \ge A - (K - 1) (T - c(S)) -
    F T`; also :math:`w(S) + c(S) \le T`, and S is convex if the problem asks for it. T is at least the smaller of the
    value of this mixed-integer model, whose dual bound holds at any time limit, and of :math:`A / (K - 1 + F)`. Needs
    ``overlap="sum"`` and a device that pays.
    """
    from balance.cut._block_models import balanced_cut as solved

    tables = CutTables.of(problem)
    if problem.overlap != "sum" or not tables.pays.any() or _too_large(tables):
        return -math.inf
    floor = _known(problem)
    return floor if floor == math.inf else solved(tables, run, floor)


# -- expensive: convex relaxations, for research -----------------------------------------------------------------------


def _relaxed(problem: CutProblem, run: Run, what: str, semidefinite: bool) -> float:
    from balance.cut import _relaxations as relaxations

    tables = CutTables.of(problem)
    if tables.n > relaxations.LARGEST or tables.barred.all(axis=0).any():
        return -math.inf
    solve = relaxations.partition if what == "partition" else relaxations.block
    return solve(tables, run, semidefinite=semidefinite)


@bound(problem=CutProblem, name="partition-sdp", seconds=120.0)
def partition_sdp(problem: CutProblem, run: Run) -> float:
    r"""Return the semidefinite relaxation of partitions into k parts.

    Proof. Let each block take its least work w over the types. For a partition into at most k parts, :math:`X_{uv}`
    says whether u and v are together: then diag X = 1, :math:`X \ge 0`, and :math:`X - J / k` is positive semidefinite,
    because :math:`x'Xx = \sum_b (\sum_{v \in b} x_v)^2 \ge (\sum_v x_v)^2 / k`. Row v of X w is the work of v's part:
    :math:`Xw \le T`. Tensor t is cut if a reader r is not with its producer p: :math:`z_t \ge 1 - X_{pr}`, and then at
    least two parts pay it: :math:`k T \ge \sum_v w_v + 2 \sum_t c_t z_t` (all types pay and ``overlap="sum"``, else c
    counts as 0). The bound is computed from the dual point of the interior-point solver, moved into the dual cone. It
    is hardly above the average on graphs that are nearly chains; up to 150 blocks.
    """
    return _relaxed(problem, run, "partition", True)


@bound(problem=CutProblem, name="partition-lp", seconds=60.0)
def partition_lp(problem: CutProblem, run: Run) -> float:
    r"""Return the linear relaxation of partitions into k parts, with triangles in place of the semidefinite cone.

    Proof: as for ``partition-sdp``; if u, v and v, x are together, so are u, x: :math:`X_{uv} + X_{vx} - X_{ux} \le 1`,
    asked where a tensor joins u and v.
    """
    return _relaxed(problem, run, "partition", False)


@bound(problem=CutProblem, name="block-sdp", seconds=120.0)
def block_sdp(problem: CutProblem, run: Run) -> float:
    r"""Return the semidefinite relaxation of ``bottleneck-block``, without convexity.

    Proof. Some device has a set S with the fair share :math:`w(S) \ge W / k` of the least work, and T is at least
    :math:`w(S) + c(S)`. With x the indicator of S and :math:`X = x x'`: diag X = x, :math:`X \ge 0`, the matrix [1 x';
    x X] is positive semidefinite, a tensor with producer p and reader r costs :math:`z_t \ge x_p + x_r - 2 X_{pr}`, and
    the inequality of the fair share may be multiplied by :math:`x_v` and by :math:`1 - x_v`. Dual point and limits as
    for ``partition-sdp``.
    """
    return _relaxed(problem, run, "block", True)


@bound(problem=CutProblem, name="block-lp", seconds=60.0)
def block_lp(problem: CutProblem, run: Run) -> float:
    r"""Return the linear relaxation of ``bottleneck-block`` by products, without convexity.

    Proof: as for ``block-sdp``, with :math:`\max(0, x_u + x_v - 1) \le X_{uv} \le \min(x_u, x_v)` in place of the
    semidefinite cone.
    """
    return _relaxed(problem, run, "block", False)


__all__ = [
    "assignment_lp",
    "average",
    "balanced_cut",
    "block_lp",
    "block_sdp",
    "bottleneck_block",
    "largest",
    "node_cut",
    "node_guess",
    "partition_lp",
    "partition_sdp",
    "pigeonhole",
    "three_super_blocks",
]
