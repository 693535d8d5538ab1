"""The simulator against an event loop, its own plain loop, and bounds that no schedule beats."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.actions import LETTERS
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ScheduleError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.playback import compiled, play
from balance.problems.model.schedule import Schedule
from balance.problems.model.simulate import simulate
from balance.problems.model.templates import build_schedule
from balance.problems.model.tensors import Tensor
from tests.model.event_loop import Loop, parts
from tests.model.strategies import valid_rows


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
