"""The simulator against numbers that were worked out elsewhere or by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.schedule import Schedule
from balance.problems.model.simulate import simulate
from balance.problems.model.timeline import Timeline


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


def test_overhead_comes_before_every_action() -> None:
    """It lengthens the step as longer actions would, but is no part of them."""
    plain = uniform(3, 5, 1.0, 2.0, 0.5)
    longer = uniform(3, 5, 1.25, 2.25, 0.5)
    with_overhead = uniform(3, 5, 1.0, 2.0, 0.5, overhead=0.25)
    assert with_overhead.step_time == longer.step_time
    assert with_overhead.busy.tolist() == plain.busy.tolist()


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
