"""Reports on a run made up by hand, in which every number is known."""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np
import pytest

from balance.executor import RankRecord, RunReport
from balance.executor.page import write_comparison, write_report
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ExecutionError, FormatError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan

# One step of 1F1B with two stages and two micro-batches; forward takes 1 s, backward 2 s, messages nothing.
KINDS = ([0, 0, 1, 1], [0, 1, 0, 1])
MICROBATCHES = ([0, 1, 0, 1], [0, 0, 1, 1])
STARTS = ([0, 1, 4, 7], [1, 2, 4, 5])
ENDS = ([1, 2, 6, 9], [2, 4, 5, 7])
SPEEDS = np.array([3.0, 1.0, 1.5, 1.0])  # how much slower each of four steps is; the first is the warm-up


def record(rank: int, **changes) -> RankRecord:
    """Return the record of a rank over four steps, each begun 100 s after the one before."""
    offset = 100.0 * np.arange(len(SPEEDS))
    fields = {
        "rank": rank,
        "device": "cpu",
        "start": offset,
        "end": offset + SPEEDS * ENDS[rank][-1],
        "finish": offset + SPEEDS * ENDS[rank][-1],
        "kind": np.array(KINDS[rank]),
        "microbatch": np.array(MICROBATCHES[rank]),
        "action_start": offset[:, None] + SPEEDS[:, None] * np.array(STARTS[rank]),
        "action_end": offset[:, None] + SPEEDS[:, None] * np.array(ENDS[rank]),
        "losses": np.ones((4, 2)) if rank == 1 else np.empty((4, 0)),
        "memory_bytes": {"peak": 100.0 + rank, "parameters": 10.0},
        "resident_bytes": 1e8,
    }
    return RankRecord(**{**fields, **changes})


def report(**changes) -> RunReport:
    """Return a report of that run with a profile that is right for the faster steps."""
    graph = CostGraph.chain(
        [1.0, 0.25, 0.75],
        backward=[2.0, 1.5, 0.5],
        parameter_bytes=[10.0, 4.0, 6.0],
        activation_bytes=[5.0, 1.0, 2.0],
        kinds=("cpu",),
    )
    fields = {
        "plan": Plan.chain([0, 1, 3], microbatches=2),
        "records": (record(0), record(1)),
        "samples": 18,
        "training": True,
        "graph": graph,
        "cluster": Cluster.uniform(2, kind="cpu", latency=0.0, bandwidth=float("inf")),
        "state_factor": 2.0,
        "machine": {"device": "cpu", "stalled": 0.25},
    }
    return RunReport(**{**fields, **changes})


def test_figures_of_a_known_run():
    """Step times, medians, busy shares and errors are those worked out by hand."""
    one = report()
    np.testing.assert_allclose(one.step_seconds, SPEEDS * 9)
    assert (one.achieved_step, one.samples_per_second) == (9.0, 2.0)
    assert one.achieved_seconds(0).tolist() == [1.0, 1.0]
    assert one.achieved_seconds(1).tolist() == [2.0, 2.0]
    np.testing.assert_allclose(one.achieved_busy, [6 / 9, 6 / 9])
    assert one.losses.tolist() == [1.0] * 4
    assert one.typical_step == 1


def test_right_profile_predicts_the_run():
    """With the true durations the prediction is exact, and so is the simulator fed with each step's own durations."""
    one = report()
    assert one.predicted_step == pytest.approx(9.0)
    assert one.error == pytest.approx(0.0, abs=1e-12)
    assert one.structure_error == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(one.predicted_seconds(1), [2.0, 2.0])
    assert one.predicted_bubble == pytest.approx(one.achieved_bubble)
    np.testing.assert_allclose(one.predicted_memory, [2 * 10 + 2 * 5, 2 * 10 + 3])


def test_wrong_profile_is_told_from_wrong_structure():
    """A profile that is a fifth too fast gives that error, while the structure stays right."""
    slow = report()
    fast = report(graph=slow.graph.replace(forward=slow.graph.forward * 0.8, backward=slow.graph.backward * 0.8))
    assert fast.error == pytest.approx(-0.2)
    assert fast.structure_error == pytest.approx(0.0, abs=1e-12)


def test_optimizer_time_is_part_of_the_step():
    """The predicted step ends with the last rank's optimizer step."""
    graph = report().graph
    one = report(graph=graph.replace(source={"optimizer_seconds": [0.5, 3.0, 0.25]}), optimizer=True)
    assert one.predicted_step == pytest.approx(7 + 3.25)  # stage 1 ends its schedule at 7 s, stage 0 at 9 s
    assert report(graph=one.graph).predicted_step == pytest.approx(9.0)


def test_optimizer_time_is_no_bubble():
    """A rank that runs its optimizer computes: only waiting is bubble, predicted and achieved."""
    graph = report().graph.replace(source={"optimizer_seconds": [1.0, 1.0, 1.0]})
    ends = [100.0 * np.arange(4) + SPEEDS * (ENDS[rank][-1] + 1 + rank) for rank in (0, 1)]
    one = report(graph=graph, optimizer=True, records=tuple(record(r, finish=ends[r]) for r in (0, 1)))
    assert one.achieved_step == one.predicted_step == pytest.approx(10.0)
    np.testing.assert_allclose(one.achieved_busy, [7 / 10, 8 / 10])
    np.testing.assert_allclose(one.predicted_busy, [7 / 10, 8 / 10])
    assert one.achieved_bubble == pytest.approx(0.25)


def test_error_is_taken_apart():
    """Work that took longer is told from a core that was not there."""
    slow = report()
    # Profiled on a quiet machine a fifth too fast; in the run the ranks had half of a core.
    graph = slow.graph.replace(
        forward=slow.graph.forward * 0.8, backward=slow.graph.backward * 0.8, source={"profile": {"on_cpu": 1.0}}
    )
    records = tuple(record(r, action_cpu=0.8 * record(r).durations) for r in (0, 1))
    one = report(graph=graph, records=records, machine={"device": "cpu", "threads": 1})
    assert one.on_cpu == pytest.approx(0.8)
    assert one.duration_error == pytest.approx(-0.2)
    assert one.explanation() == [
        "The simulator fed with the durations of the run itself is off by +0.0 %; the profile's durations, summed over "
        "a step, by -20.0 %.",
        "By CPU time they are off by +0.0 %: actions ran on a CPU for 100 % of their time in the profile and 80 % "
        "in the run.",
        "The rest they waited for a core that other programs had; repeat on a quiet machine.",
    ]
    assert len(slow.explanation()) == 1  # on an accelerator, and without CPU times
    assert report(graph=None).explanation() == []
    assert RunReport.from_json(json.loads(json.dumps(one.to_json(), allow_nan=False))).on_cpu == one.on_cpu


def test_achieved_timeline_is_the_typical_step():
    """The picture shows the median step, moved to start at zero."""
    timeline = report().achieved
    assert timeline.start.min() == 0.0
    assert sorted(timeline.end.tolist()) == sorted([*ENDS[0], *ENDS[1]])
    assert timeline.n_devices == 2


def test_no_prediction_without_a_profile():
    """Without graph or cluster there are achieved figures only, and nothing fails."""
    one = report(graph=None)
    assert one.predicted is one.error is one.structure_error is one.predicted_memory is None
    assert "predicted -, achieved 9.000 s" in one.summary()


def test_round_trip(tmp_path):
    """A saved report comes back with the same figures, and broken files are refused with the field's name."""
    one = report()
    path = tmp_path / "report.json"
    one.save(path)
    again = RunReport.load(path)
    assert again.to_json() == one.to_json()
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["metrics"]["achieved_step_seconds"] == 9.0
    broken = {**data, "records": [{**data["records"][0], "start": "soon"}, data["records"][1]]}
    with pytest.raises(FormatError, match=r"records\[0\].start"):
        RunReport.from_json(broken)
    with pytest.raises(FormatError, match="do not fit a plan of 2 stages"):
        RunReport.from_json({**data, "records": data["records"][:1]})
    with pytest.raises(FormatError, match="not the record of a rank"):
        RunReport.from_json({**data, "records": [{**data["records"][0], "kind": [0]}, data["records"][1]]})
    with pytest.raises(FormatError, match="unknown"):
        RunReport.from_json({**data, "records": [{**data["records"][0], "unknown": 1}, data["records"][1]]})
    with pytest.raises(FormatError, match="unknown"):
        RunReport.from_json({**data, "unknown": 1})


def test_records_must_fit():
    """Records of another shape or without a warm-up are refused."""
    with pytest.raises(ExecutionError, match="microbatch of shape"):
        record(0, microbatch=np.array([0]))
    for changes, message in (
        ({"start": np.array([0.0, np.nan, 0, 0])}, "not finite"),
        ({"action_end": record(0).action_start - 1.0}, "ends before it starts"),
        ({"kind": np.array([0, 1, 2, 1])}, "kinds other than 0 and 1"),
        ({"action_cpu": np.zeros((4, 3))}, "action_cpu of a shape"),
    ):
        with pytest.raises(ExecutionError, match=message):
            record(0, **changes)
    with pytest.raises(ExecutionError, match="no peak memory"):
        record(0, memory_bytes={})
    with pytest.raises(ExecutionError, match="do not fit"):
        report(records=(record(0),))


def test_page_is_whole(tmp_path):
    """The page holds figures and the picture, and the other files lie beside it."""
    pytest.importorskip("matplotlib")
    page = write_report(report(), tmp_path / "out").read_text(encoding="utf-8")
    assert page.count("<svg") == 1
    assert "9.000 s" in page
    assert "+0.0 %" in page
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["report.html", "report.json", "timelines.svg", "trace.json"]
    trace = json.loads((tmp_path / "out" / "trace.json").read_text(encoding="utf-8"))
    assert {event["pid"] for event in trace["traceEvents"]} == {0, 1}  # predicted and achieved
    spans = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            spans.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert sum(len(row) for row in spans.values()) >= 16
    for row in spans.values():
        row.sort()
        assert all(b[0] >= a[1] - 1e-3 for a, b in itertools.pairwise(row))  # microseconds, rounded


def test_page_without_prediction(tmp_path):
    """A run without a profile has a page of achieved figures."""
    pytest.importorskip("matplotlib")
    page = write_report(report(graph=None), tmp_path).read_text(encoding="utf-8")
    assert "9.000 s" in page
    assert "fed with the durations" not in page


def test_page_without_matplotlib(tmp_path, monkeypatch):
    """Without matplotlib everything but the picture is written, and the page says what brings it."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = write_report(report(), tmp_path).read_text(encoding="utf-8")
    assert "dnn-balance[plot]" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json", "trace.json"]


def test_comparison_page(tmp_path):
    """Several reports share a page; names are escaped."""
    pytest.importorskip("matplotlib")
    page = write_comparison({"even": report(), "<ours>": report(), "ours": report()}, tmp_path, notes=["a & b"])
    text = page.read_text(encoding="utf-8")
    assert "&lt;ours&gt;" in text
    assert "a &amp; b" in text
    assert text.count("<svg") == 3
    # Names that differ in signs only do not share a folder.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["even", "index.html", "ours", "ours-3"]
