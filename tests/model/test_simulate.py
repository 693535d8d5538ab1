"""Tests of the simulator: numbers worked out elsewhere, an event loop as oracle, and what it refuses."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.actions import LETTERS
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.errors import ClusterError, GraphError, OptionError, PlanError, ScheduleError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.plan import Plan, Replica, Stage
from balance.problems.model.playback import compiled, play
from balance.problems.model.schedule import Schedule
from balance.problems.model.simulate import simulate
from balance.problems.model.templates import build_schedule
from balance.problems.model.tensors import Tensor
from balance.problems.model.timeline import Timeline
from tests.model.event_loop import Loop, parts
from tests.model.strategies import valid_rows


def uniform(
    stages: int, count: int, f: float, b: float, h: float, schedule: str | Schedule = "1f1b", **options: Any
) -> Timeline:
    """Simulate equal stages with equal hops."""
    graph = CostGraph.chain(np.full(stages, f), backward=np.full(stages, b), seconds=h)
    plan = Plan.chain(range(stages + 1), microbatches=count, schedule=schedule)
    return simulate(plan, graph, Cluster.uniform(stages), **options)


def eager(stages: int, count: int) -> Schedule:
    """Return 1F1B with 2 (S - s) micro-batches in flight instead of S - s."""
    rows = []
    for s in range(stages):
        ahead = min(2 * (stages - s), count) - 1
        row = [f"{s}F{m}" for m in range(ahead)]
        for m in range(count):
            row += [f"{s}F{m + ahead}"] if m + ahead < count else []
            row.append(f"{s}B{m}")
        rows.append(row)
    return Schedule.from_rows(rows)


@pytest.mark.parametrize(
    ("stages", "count", "f", "b", "h", "closed", "one_f_one_b"),
    [(4, 100, 10, 10, 1, 2066, 2214), (8, 200, 10, 20, 2, 6238, 6934)],
)
def test_1f1b_misses_the_closed_form(
    stages: int, count: int, f: float, b: float, h: float, closed: float, one_f_one_b: float
) -> None:
    """GPipe and 1F1B with twice the micro-batches reach (M + S - 1)(f + b) + 2 h (S - 1); plain 1F1B does not."""
    assert closed == (count + stages - 1) * (f + b) + 2 * h * (stages - 1)
    assert uniform(stages, count, f, b, h, "gpipe").step_time == closed
    assert uniform(stages, count, f, b, h, eager(stages, count)).step_time == closed
    assert uniform(stages, count, f, b, h).step_time == one_f_one_b


@given(st.integers(1, 8), st.integers(1, 12), st.integers(1, 9), st.integers(1, 9), st.sampled_from(["1f1b", "gpipe"]))
def test_free_hops_reach_the_closed_form(stages: int, count: int, f: int, b: int, schedule: str) -> None:
    """Without transfer times both schedules take (M + S - 1)(f + b), whichever way sends are done."""
    for sends in ("buffered", "rendezvous"):
        timeline = uniform(stages, count, f, b, 0.0, schedule, sends=sends)
        assert timeline.step_time == (count + stages - 1) * (f + b)
        assert timeline.bubble_fraction == pytest.approx((stages - 1) / (count + stages - 1))


def test_interleaving_shrinks_the_bubble() -> None:
    """With V chunks the bubble is (P - 1) / V micro-batches instead of P - 1."""
    devices, chunks, count = 4, 2, 8
    graph = CostGraph.chain(np.ones(8), backward=np.full(8, 2.0))
    plan = Plan.chain(range(9), [s % devices for s in range(8)], microbatches=count, schedule="interleaved-1f1b")
    assert simulate(plan, graph, Cluster.uniform(devices)).step_time == 3.0 * (count * chunks + devices - 1)


def test_small_step_by_hand() -> None:
    """Two stages, two micro-batches, a link of 1 s + 2 s forward and 1 s + 1 s backward, device 1 twice as fast."""
    graph = CostGraph.chain([3.0, 4.0], backward=[5.0, 6.0], bytes=20.0, gradient_bytes=10.0)
    cluster = Cluster([Device(), Device(speed=2.0)], link=Link(1.0, 10.0))
    plan = Plan.chain([0, 1, 2], microbatches=2, microbatch_size=8.0)
    timeline = simulate(plan, graph, cluster)
    found = {str(a): (start, end) for d in range(2) for a, start, end in timeline.actions(d)}
    assert found == {
        "0F0": (0, 3), "0F1": (3, 6), "1F0": (6, 8), "1B0": (8, 11), "1F1": (11, 13), "1B1": (13, 16),
        "0B0": (13, 18), "0B1": (18, 23),
    }  # fmt: skip
    transfers = timeline.transfers
    columns = (transfers.source, transfers.target, transfers.kind, transfers.microbatch, transfers.start, transfers.end)
    assert [tuple(row) for row in zip(*(c.tolist() for c in columns), strict=True)] == [
        (0, 1, 0, 0, 3, 6), (0, 1, 0, 1, 6, 9), (1, 0, 1, 0, 11, 13), (1, 0, 1, 1, 16, 18),
    ]  # fmt: skip
    assert transfers.bytes.tolist() == [20, 20, 10, 10]
    assert (transfers.stage_from.tolist(), transfers.stage_to.tolist()) == ([0, 0, 1, 1], [1, 1, 0, 0])
    assert len(transfers) == 4
    assert timeline.busy.tolist() == [16, 10]
    assert timeline.bubble_fraction == pytest.approx(1 - 26 / 46)
    assert timeline.bubbles(0).tolist() == [[6, 13]]
    assert timeline.bubbles(1).tolist() == [[0, 6], [16, 23]]
    assert timeline.samples_per_second == pytest.approx(16 / 23)
    assert "step 23 s" in repr(timeline)


def test_rendezvous_by_hand() -> None:
    """The sender stalls until the receiver asks; sends and receives that meet are done together."""
    graph = CostGraph.chain([1.0, 4.0], backward=[1.0, 4.0], seconds=1.0)
    plan = Plan.chain([0, 1, 2], microbatches=3)
    timeline = simulate(plan, graph, Cluster.uniform(2), sends="rendezvous")
    found = {str(a): (start, end) for d in range(2) for a, start, end in timeline.actions(d)}
    assert found == {
        # 0F1 runs while the message of 0F0 is on its way. Device 1 asks for more when 1B0 is over, at 10.
        "0F0": (0, 1), "0F1": (1, 2), "1F0": (2, 6), "1B0": (6, 10), "1F1": (11, 15), "0B0": (11, 12), "0F2": (12, 13),
        "1B1": (15, 19), "1F2": (20, 24), "0B1": (20, 21), "1B2": (24, 28), "0B2": (29, 30),
    }  # fmt: skip
    assert simulate(plan, graph, Cluster.uniform(2)).step_time == 28.0


# -- against the oracle ----------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[Schedule, np.ndarray, np.ndarray, float]:
    """Draw a schedule that can be run, seconds by stage and kind, hops by phase and boundary, and an overhead."""
    if draw(st.booleans()):
        schedule = Schedule.from_rows(draw(valid_rows()))
    else:
        name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved-1f1b", "forward-only"]))
        devices, chunks = draw(st.integers(1, 4)), draw(st.integers(1, 3)) if name != "1f1b" else 1
        count = draw(st.integers(1, 3)) * (devices if name == "interleaved-1f1b" else 1)
        schedule = build_schedule(name, devices * chunks, count, training=draw(st.booleans()), chunks=chunks)
    # Multiples of 1/8 add up exactly, so that both loops must agree to the last bit, ties included.
    eighths = st.integers(0, 24).map(lambda i: i / 8)
    stages = schedule.n_stages
    table = draw(st.lists(eighths, min_size=4 * stages, max_size=4 * stages))
    hop = draw(st.lists(eighths, min_size=2 * stages, max_size=2 * stages))
    return schedule, np.reshape(table, (stages, 4)), np.reshape(hop, (2, stages)), draw(st.sampled_from([0.0, 0.125]))


@given(cases(), st.sampled_from(["buffered", "rendezvous"]))
def test_agrees_with_the_event_loop(case: Any, sends: str) -> None:
    """Times of all actions and transfers equal those of devices and links played as processes; so do deadlocks."""
    schedule, table, hop, overhead = case
    stages, home = schedule.n_stages, schedule.home
    tensors = [Tensor(s, (s + 1,), seconds=hop[0, s], gradient_seconds=hop[1, s]) for s in range(stages - 1)]
    graph = CostGraph(forward=np.ones(stages), backward=np.ones(stages), tensors=tensors)
    plan = Plan.chain(range(stages + 1), home, microbatches=schedule.microbatches, schedule=schedule)

    def seconds(action: str) -> float:
        stage, letter, _ = parts(action)
        return float(table[stage, LETTERS.index(letter)])

    def way(phase: str, giver: int, taker: int) -> float | None:
        given = float(hop["FB".index(phase), min(giver, taker)])
        return None if home[giver] == home[taker] or given == 0 else given

    loop = Loop(schedule.rows(), seconds, way, rendezvous=sends == "rendezvous", overhead=overhead)
    finished = loop.run()
    cluster = Cluster.uniform(schedule.n_devices)
    if not finished:
        assert sends == "rendezvous"
        with pytest.raises(ScheduleError, match="deadlock"):
            simulate(plan, graph, cluster, sends=sends, durations=table, overhead=overhead)
        return
    timeline = simulate(plan, graph, cluster, sends=sends, durations=table, overhead=overhead)
    found = {str(a): (start, end) for d in range(timeline.n_devices) for a, start, end in timeline.actions(d)}
    assert found == loop.times
    transfers = timeline.transfers
    rows = zip(transfers.kind, transfers.stage_to, transfers.microbatch, transfers.start, transfers.end, strict=True)
    messages = {("FB"[k], int(s), int(m)): (float(a), float(z)) for k, s, m, a, z in rows}
    assert messages == {key: (m.begin, m.end) for key, m in loop.messages.items()}


@given(cases(), st.booleans())
def test_compiled_and_plain_loop_agree(case: Any, rendezvous: bool) -> None:
    """The compiled loop gives the bits of the plain one, and hangs where it hangs."""
    from balance.problems.model.completeness import where

    schedule, table, hop, overhead = case
    stages, count = schedule.n_stages, schedule.microbatches
    forward, backward = where(schedule)
    seconds = np.pad(hop, ((0, 0), (0, 1))).astype(float)
    slot = np.full((2, stages + 1), -1)
    flows = 0
    for phase in range(2 if len(backward) else 1):
        for b in range(1, stages):
            if schedule.home[b - 1] != schedule.home[b]:
                slot[phase, b], flows = flows, flows + 1
    results = []
    for run in (play, compiled()):
        start, end, posted = (np.zeros(schedule.n_actions) for _ in range(3))
        sent, received = np.zeros((flows, count)), np.zeros((flows, count))
        at, lacks = run(
            schedule.stage, schedule.microbatch, schedule.kind, schedule.offsets, schedule.home, count, forward,
            backward, table, np.zeros(0), seconds, slot, slot, rendezvous, overhead, start, end, sent, received, posted,
        )  # fmt: skip
        results.append([a.tolist() for a in (at, lacks, start, end, sent, received, posted)])
    assert results[0] == results[1]


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 3), st.randoms(use_true_random=False))
def test_nothing_beats_the_bounds(stages: int, count: int, hop: int, random: Any) -> None:
    """No schedule is faster than head, load and tail of any stage; slower sends are never faster."""
    f = [random.randint(1, 9) for _ in range(stages)]
    b = [random.randint(1, 9) for _ in range(stages)]
    graph = CostGraph.chain(np.array(f, dtype=float), backward=np.array(b, dtype=float), seconds=float(hop))
    bound = max(sum(f[:s]) + sum(b[:s]) + 2 * hop * s + count * (f[s] + b[s]) for s in range(stages))
    for schedule in ("gpipe", "1f1b"):
        plan = Plan.chain(range(stages + 1), microbatches=count, schedule=schedule)
        fast = simulate(plan, graph, Cluster.uniform(stages))
        slow = simulate(plan, graph, Cluster.uniform(stages), sends="rendezvous")
        assert bound <= fast.step_time <= slow.step_time


@given(cases())
def test_timelines_are_consistent(case: Any) -> None:
    """Devices do one thing at a time, links carry one message at a time, busy time and bubbles fill the step."""
    schedule, table, hop, overhead = case
    stages = schedule.n_stages
    tensors = [Tensor(s, (s + 1,), seconds=hop[0, s], gradient_seconds=hop[1, s]) for s in range(stages - 1)]
    graph = CostGraph(forward=np.ones(stages), backward=np.ones(stages), tensors=tensors)
    plan = Plan.chain(range(stages + 1), schedule.home, microbatches=schedule.microbatches, schedule=schedule)
    timeline = simulate(plan, graph, Cluster.uniform(schedule.n_devices), durations=table, overhead=overhead)
    for d in range(timeline.n_devices):
        spans = [(start, end) for _, start, end in timeline.actions(d)]
        assert all(b[0] >= a[1] for a, b in pairwise(spans))
        idle = timeline.bubbles(d)
        assert timeline.busy[d] + (idle[:, 1] - idle[:, 0]).sum() == pytest.approx(timeline.step_time)
    assert 0 <= timeline.bubble_fraction <= 1
    ways: dict[tuple[int, int], list[tuple[float, float]]] = {}
    t = timeline.transfers
    for source, target, start, end in zip(t.source, t.target, t.start, t.end, strict=True):
        ways.setdefault((source, target), []).append((start, end))
    for spans in ways.values():
        assert all(b[0] >= a[1] for a, b in pairwise(sorted(spans)))
    tracks: dict[int, list[tuple[int, int]]] = {}
    for event in timeline.to_chrome_trace()["traceEvents"]:
        if event["ph"] == "X":
            begin = round(event["ts"] * 1e3)
            tracks.setdefault(event["tid"], []).append((begin, begin + round(event["dur"] * 1e3)))
    for spans in tracks.values():
        assert all(b[0] >= a[1] for a, b in pairwise(sorted(spans)))


# -- where the times come from ---------------------------------------------------------------------------------


def test_worked_layer_graph(layers: CostGraph) -> None:
    """What skips stages goes through the stages between: boundary 1 carries 6 + 4 bytes, boundary 2 carries 6 + 2."""
    plan = Plan.chain([0, 2, 3, 4], microbatches=1, schedule="gpipe")
    timeline = simulate(plan, layers, Cluster.uniform(3, latency=1.0, bandwidth=2.0))
    # Two tensors cross each boundary, and each pays the latency.
    assert timeline.transfers.bytes.tolist() == [10, 8, 10, 7]
    assert (timeline.transfers.end - timeline.transfers.start).tolist() == [2 + 5, 2 + 4, 2 + 5, 2 + 3.5]
    assert timeline.step_time == (3 + 3 + 2) + 13 + (4 + 6 + 6) + 12.5


def test_worked_operator_graph(operators: CostGraph) -> None:
    """Operators of the backward pass make the backward time of their stage."""
    plan = Plan.chain([0, 2, 4], order=np.array([0, 3, 1, 2]), microbatches=1)
    timeline = simulate(plan, operators, Cluster.uniform(2, bandwidth=4.0))
    assert timeline.step_time == 1 + 2 + 2 + 4 + 2 + 2
    assert timeline.peak_memory.tolist() == [100, 200]


def test_kinds_speeds_configurations_and_recomputation() -> None:
    """Each stage takes the row of its device's kind and the columns of its configurations."""
    graph = CostGraph(
        forward={"slow": [[4.0, 8.0, 8.0], [2.0, 4.0, 4.0]], "fast": [[1.0, 2.0, 3.0], [3.0, 5.0, 5.0]]},
        backward={"slow": [[8.0, 8.0, 8.0], [4.0, 4.0, 4.0]], "fast": [[2.0, 3.0, 2.0], [6.0, 6.0, 6.0]]},
        configurations=[Configuration(), Configuration(2)],
    )
    cluster = Cluster([Device("fast", speed=2.0), Device("slow")])
    stages = (
        Stage([0], (Replica((1,)),), configuration=1),
        Stage([1, 2], (Replica((0,)),), configuration=np.array([0, 1]), recompute=True),
    )
    timeline = simulate(Plan(stages, microbatches=1), graph, cluster)
    seconds = {str(a): end - start for d in range(2) for a, start, end in timeline.actions(d)}
    assert seconds == {"0F0": 2.0, "0B0": 4.0, "1F0": (2 + 5) / 2, "1B0": (3 + 6 + 2 + 5) / 2}


def test_replicas_share_the_work() -> None:
    """A stage is as slow as its slowest replica, and its messages as slow as its slowest pair of devices."""
    graph = CostGraph.chain([8.0, 8.0], backward=[8.0, 8.0], bytes=10.0)
    stages = (Stage([0], (Replica((0,), 0.25), Replica((1,), 0.75))), Stage([1], (Replica((2, 3)),)))
    devices = [Device(speed=1.0), Device(speed=2.0), Device(), Device(speed=0.5)]
    bandwidth = np.full((4, 4), 10.0)
    bandwidth[1, 3] = 5.0
    cluster = Cluster.from_matrix(devices, latency=np.zeros((4, 4)), bandwidth=bandwidth)
    timeline = simulate(Plan(stages, microbatches=1), graph, cluster)
    assert timeline.step_time == 3 + 2 + 16 + 16 + 1 + 3
    assert timeline.leader.tolist() == [0, 0, 2, 2]
    assert timeline.busy.tolist() == [6, 6, 32, 32]
    assert timeline.bubble_fraction == pytest.approx(1 - 76 / 4 / 41)


def test_durations_by_stage_or_by_action() -> None:
    """Measured seconds take the place of the graph's."""
    graph = CostGraph.chain([9.0, 9.0], backward=[9.0, 9.0])
    plan = Plan.chain([0, 1, 2], microbatches=2)
    cluster = Cluster.uniform(2)
    assert simulate(plan, graph, cluster, durations=[[1, 2], [1, 2]]).step_time == 9.0
    each = [1, 1, 2, 2, 1, 2, 1, 2]
    assert simulate(plan, graph, cluster, durations=each).step_time == 9.0
    assert simulate(plan, graph, cluster, durations=[1, 1, 2, 2, 1, 2, 1, 4]).step_time == 11.0
    assert simulate(plan, graph, cluster, durations=[[1], [1]], training=False).step_time == 3.0
    for wrong, says in (([[1], [1]], "shape"), ([1, 2], "shape"), ([[1, -1], [1, 1]], "negative"), ("x", "numbers")):
        with pytest.raises(OptionError, match=says):
            simulate(plan, graph, cluster, durations=wrong)


def test_split_backward() -> None:
    """Input and weight gradients take the times that the graph gives for them; without them it is an error."""
    schedule = Schedule.from_rows(
        [["0F0", "0F1", "0I0", "0W0", "0I1", "0W1"], ["1F0", "1I0", "1F1", "1I1", "1W0", "1W1"]]
    )
    plan = Plan.chain([0, 1, 2], microbatches=2, schedule=schedule)
    graph = CostGraph.chain(np.ones(2), backward=np.full(2, 2.0), backward_input=np.ones(2), backward_weight=np.ones(2))
    assert simulate(plan, graph, Cluster.uniform(2)).step_time == 7.0
    with pytest.raises(PlanError, match="give backward_input="):
        simulate(plan, graph.replace(backward_input=None), Cluster.uniform(2))


def test_overhead_comes_before_every_action() -> None:
    """It lengthens the step as longer actions would, but is no part of them."""
    plain = uniform(3, 5, 1.0, 2.0, 0.5)
    longer = uniform(3, 5, 1.25, 2.25, 0.5)
    with_overhead = uniform(3, 5, 1.0, 2.0, 0.5, overhead=0.25)
    assert with_overhead.step_time == longer.step_time
    assert with_overhead.busy.tolist() == plain.busy.tolist()


def test_style_decides_whether_there_is_a_backward_pass() -> None:
    """Inference graphs run forward only, and `training` overrides it."""
    graph = CostGraph.chain([1.0, 1.0], bytes=4.0, backward=0.0)
    plan = Plan.chain([0, 1, 2], microbatches=3)
    cluster = Cluster.uniform(2, bandwidth=4.0)
    assert simulate(plan, graph, cluster).step_time == 5.0
    layers = graph.replace(backward=[1.0, 1.0])
    assert simulate(plan, layers, cluster, training=False).step_time == 5.0
    assert not simulate(plan.replace(schedule="forward-only"), layers, cluster).schedule.training
    with pytest.raises(ScheduleError, match="training=False, but the schedule has backward"):
        simulate(plan.replace(schedule=build_schedule("1f1b", 2, 3)), layers, cluster, training=False)


def test_unused_devices_and_empty_stages() -> None:
    """Devices without work wait outside the figures; an empty stage passes on what comes."""
    graph = CostGraph.chain([1.0, 1.0], backward=[1.0, 1.0], seconds=1.0)
    plan = Plan.chain([0, 1, 1, 2], devices=[4, 0, 2], microbatches=1)
    timeline = simulate(plan, graph, Cluster.uniform(6))
    assert timeline.step_time == 8.0
    assert timeline.busy.tolist() == [0, 0, 2, 0, 2, 0]
    assert timeline.used.tolist() == [True, False, True, False, True, False]
    assert timeline.bubbles(5).tolist() == [[0, 8]]
    assert timeline.bubble_fraction == pytest.approx(1 - 4 / 3 / 8)


def test_compact_and_picklable() -> None:
    """An action takes at most 32 bytes, and a timeline survives pickling."""
    timeline = uniform(8, 64, 1.0, 2.0, 0.5)
    size = sum(
        column.nbytes
        for column in (
            timeline.schedule.stage, timeline.schedule.microbatch, timeline.schedule.kind, timeline.start, timeline.end,
        )
    )  # fmt: skip
    assert size / timeline.schedule.n_actions <= 32
    again = pickle.loads(pickle.dumps(timeline))
    assert (again.step_time, again.peak_memory.tolist()) == (timeline.step_time, timeline.peak_memory.tolist())


# -- what is refused -------------------------------------------------------------------------------------------

CHAIN = CostGraph.chain([1.0, 1.0, 1.0], backward=[1.0, 1.0, 1.0], bytes=1.0)
PLAN = Plan.chain([0, 1, 3], microbatches=2)
FAST = Cluster.uniform(2, bandwidth=1.0)


@pytest.mark.parametrize(
    ("plan", "cluster", "options", "error", "says"),
    [
        (PLAN, FAST, {"sends": "bufferd"}, OptionError, "did you mean 'buffered'"),
        (PLAN, FAST, {"backend": "torhc"}, OptionError, "did you mean 'torch'"),
        (PLAN, FAST, {"overhead": -1.0}, OptionError, "overhead"),
        (PLAN, FAST, {"state_factor": float("nan")}, OptionError, "state_factor"),
        (PLAN, Cluster.uniform(2), {}, ClusterError, "give bandwidth="),
        (PLAN, Cluster.uniform(1), {}, PlanError, "stage 1 is on device 1, but the cluster has 1"),
        (PLAN, Cluster.uniform(2, kind="gpu"), {}, GraphError, "gpu"),
        (PLAN.replace(schedule="1f1"), FAST, {}, OptionError, "did you mean '1f1b'"),
        (PLAN.replace(schedule=build_schedule("1f1b", 2, 3)), FAST, {}, ScheduleError, "2 stages and 3 micro-batches"),
        (PLAN.replace(schedule=build_schedule("gpipe", 2, 2, [1, 0])), FAST, {}, ScheduleError, "stage 0 on device 1"),
        (
            PLAN.replace(schedule=Schedule.from_rows([["0F0", "0F1", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])),
            FAST, {}, ScheduleError, "0B0 is missing",
        ),
        (
            PLAN.replace(schedule=Schedule.from_rows([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]])),
            FAST, {}, ScheduleError, "deadlock: 0B0 waits for 1B0, which comes after 1F1",
        ),
        (Plan.chain([0, 1, 2]), FAST, {}, PlanError, "operator #2 is in no stage"),
        (Plan.chain([0, 1, 4]), FAST, {}, PlanError, "operator 3, but the graph has 3"),
        (Plan.chain([0, 1, 3], order=np.array([2, 0, 1])), FAST, {}, PlanError, "against the order of the stages"),
        (Plan((Stage([0, 1, 2], (Replica((0,)),), configuration=1),)), FAST, {}, PlanError, "configuration 1"),
        (
            Plan((Stage([0, 1], (Replica((0,)),), evict_to=1), Stage([2], (Replica((1,)),)))),
            FAST, {}, PlanError, "evict",
        ),
        (
            Plan((Stage([0, 1], (Replica((0, 1)),)), Stage([2], (Replica((1,)),)))),
            FAST, {}, PlanError, "share device 1 but not all",
        ),
    ],
)  # fmt: skip
def test_refusals(plan: Plan, cluster: Cluster, options: dict[str, Any], error: type[Exception], says: str) -> None:
    """Each mistake is explained."""
    with pytest.raises(error, match=says):
        simulate(plan, CHAIN, cluster, **options)


def test_evictions_are_refused() -> None:
    """A schedule may hold evictions; the simulator says that it does not play them."""
    schedule = Schedule.from_rows([["0F0", "0E0", "0L0", "0B0"]])
    graph = CostGraph.chain([1.0], backward=[1.0])
    with pytest.raises(ScheduleError, match="does not play evictions"):
        simulate(Plan.chain([0, 1], schedule=schedule), graph, Cluster.uniform(1))


def test_unhosted_operator_is_named() -> None:
    """The message has operator, stage, device and kind."""
    graph = CostGraph(forward={"a": [1.0, 1.0], "b": [1.0, np.inf]}, backward={"a": [1.0, 1.0], "b": [1.0, np.inf]})
    cluster = Cluster([Device("a"), Device("b")])
    with pytest.raises(PlanError, match="operator #1 of stage 1 cannot run on device 1, which is of kind 'b'"):
        simulate(Plan.chain([0, 1, 2]), graph, cluster)


def test_rendezvous_deadlock_says_what_to_do() -> None:
    """Interleaved devices can send to each other at once: buffered sends run, rendezvous hangs."""
    graph = CostGraph.chain(np.ones(4), backward=np.ones(4), seconds=1.0)
    plan = Plan.chain(range(5), [0, 1, 0, 1], microbatches=4, schedule="interleaved-1f1b")
    assert simulate(plan, graph, Cluster.uniform(2)).step_time > 16
    with pytest.raises(ScheduleError, match="sends='buffered' may run it") as caught:
        simulate(plan, graph, Cluster.uniform(2), sends="rendezvous")
    assert caught.value.facts["cycle"] == ("0F3", "1F2")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"start": [0.0]}, "shapes"),
        ({"end": [-1.0, 1.0]}, "not a span of time"),
        ({"start": [float("nan"), 1.0]}, "not a span of time"),
        ({"device": [0, 3]}, "there are 2 devices"),
        ({"stage": [0]}, "one per action"),
    ],
)
def test_measured_timelines_are_checked(columns: dict[str, Any], says: str) -> None:
    """What a runtime measured may be wrong; actions may come in any order."""
    good = {
        "device": [1, 0], "stage": [1, 0], "microbatch": [0, 0], "kind": [0, 0], "start": [1.0, 0.0], "end": [2.0, 1.0],
    }  # fmt: skip
    timeline = Timeline(**good, n_devices=2)
    assert timeline.device.tolist() == [0, 1]
    assert timeline.start.tolist() == [0, 1]
    with pytest.raises(ScheduleError, match=says):
        Timeline(**{**good, **columns}, n_devices=2)


def test_stray_devices_of_measured_actions_are_named() -> None:
    """Below 0 as well as beyond the last."""
    row = {"stage": [0, 0], "microbatch": [0, 0], "kind": [0, 1], "start": [0.0, 1.0], "end": [1.0, 2.0]}
    for devices, stray in (([-1, 0], "-1"), ([0, 7], "7")):
        with pytest.raises(ScheduleError, match=f"on device {stray}, but there are 2"):
            Timeline(device=devices, n_devices=2, **row)
