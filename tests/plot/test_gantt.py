"""Tests of the pictures and traces of timelines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="pictures need matplotlib")

from balance.plot import chrome_trace, gantt
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import MissingDependencyError, OptionError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Plan
from balance.problems.model.simulate import simulate
from balance.problems.model.timeline import Timeline


def timeline(devices: int = 3, count: int = 4, chunks: int = 1, activations: float = 1e6) -> Timeline:
    """Simulate equal stages."""
    stages = devices * chunks
    graph = CostGraph.chain(np.ones(stages), backward=np.ones(stages), seconds=0.2, activation_bytes=activations)
    schedule = "1f1b" if chunks == 1 else "interleaved-1f1b"
    plan = Plan.chain(
        range(stages + 1),
        [s % devices for s in range(stages)],
        microbatches=count,
        microbatch_size=2.0,
        schedule=schedule,
    )
    return simulate(plan, graph, Cluster.uniform(devices))


@pytest.mark.parametrize(
    ("name", "begins"), [("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG"), ("a.pdf", b"%PDF"), ("deep.name.svg", b"<?xml")]
)
def test_format_by_ending(tmp_path: Path, name: str, begins: bytes) -> None:
    """The ending decides the format; nothing else is left in the folder, and an old file is replaced."""
    (tmp_path / name).write_bytes(b"old")
    gantt(timeline(), tmp_path / name, title="A title")
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_svg_holds_the_words_and_is_reproducible(tmp_path: Path) -> None:
    """Title, labels, figures and micro-batch numbers are text; equal timelines give equal bytes."""
    for name in ("a.svg", "b.svg"):
        gantt([timeline(), timeline(count=5)], tmp_path / name, title="Two steps", labels=["predicted", "achieved"])
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "b.svg").read_text(encoding="utf-8")
    for words in ("Two steps", "predicted: step", "achieved: step", "bubble", "device 2", "memory [MB]", "forward"):
        assert words in text
    assert str(tmp_path) not in text


def test_figure_shows_what_the_timeline_holds() -> None:
    """Every action is a box, bubbles are hatched, transfers are lines, numbers stand in the bars; no memory if none."""
    one = timeline(activations=0.0)
    (axes,) = gantt(one).axes
    boxes = sum(len(c.get_paths()) for c in axes.collections if c.get_hatch() is None and c.get_zorder() == 3)
    lines = sum(len(c.get_paths()) for c in axes.collections if c.get_zorder() == 2)
    bubbles = sum(len(c.get_paths()) for c in axes.collections if c.get_hatch() is not None)
    assert boxes == one.schedule.n_actions == 24
    assert lines == len(one.transfers) == 16
    assert bubbles == sum(len(one.bubbles(d)) for d in range(3))
    assert sorted(text.get_text() for text in axes.texts) == sorted("0123" * 6)
    assert axes.get_xlim() == (0, one.step_time)
    assert len(gantt(timeline()).axes) == 2
    assert len(gantt(timeline(), memory=False).axes) == 1


def test_comparison_shares_the_axis_of_time() -> None:
    """Both charts end with the longer step."""
    figure = gantt([timeline(count=2), timeline(count=6)], labels=["a", "b"])
    ends = {axes.get_xlim()[1] for axes in figure.axes}
    assert ends == {timeline(count=6).step_time}


def test_into_given_axes() -> None:
    """One timeline can be drawn into axes of the caller's figure."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    assert gantt(timeline(), ax=axes, title="mine") is figure
    assert axes.get_title(loc="left") == "mine"
    with pytest.raises(OptionError, match="ax= holds one timeline"):
        gantt([timeline(), timeline()], ax=axes)


@pytest.mark.parametrize(
    "one",
    [
        timeline(1, 1),
        timeline(4, 8, 2),
        timeline(16, 2),
        Timeline(device=[], stage=[], microbatch=[], kind=[], start=[], end=[]),
        Timeline(device=[0], stage=[0], microbatch=[0], kind=[0], start=[0.0], end=[0.0]),
        Timeline(device=[2, 2], stage=[0, 0], microbatch=[0, 0], kind=[0, 1], start=[0.0, 1e-7], end=[1e-7, 3e-7]),
    ],
    ids=["one action a kind", "interleaved", "many devices", "empty", "no time", "measured"],
)
def test_unusual_timelines(tmp_path: Path, one: Timeline) -> None:
    """Small, empty, instant and measured timelines are drawn without a warning."""
    gantt(one, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_large_timelines_stay_small_files(tmp_path: Path) -> None:
    """Ten thousand actions are drawn in pixels, also in a vector picture."""
    gantt(timeline(32, 160), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size < 2e6


@pytest.mark.parametrize(
    ("what", "options", "says"),
    [
        (timeline(), {"path": "a.svgg"}, "did you mean 'svg'"),
        (timeline(), {"path": "picture"}, "no ending"),
        (timeline(), {"labels": ["a", "b"]}, "do not fit 1 timelines"),
        (timeline(), {"labels": "a"}, "do not fit"),
        ([], {}, "give a Timeline"),
        ("timeline", {}, "give a Timeline"),
    ],
)
def test_mistakes_are_explained(what: object, options: dict[str, object], says: str) -> None:
    """Wrong endings, labels and arguments."""
    with pytest.raises(OptionError, match=says):
        gantt(what, **options)  # type: ignore[arg-type]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old picture stays, and no part of the new one lies beside it."""
    from matplotlib.figure import Figure

    target = tmp_path / "a.svg"
    target.write_text("old")

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", broken)
    with pytest.raises(OSError, match="disk full"):
        gantt(timeline(), target)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.svg", "old")]


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the extra to install; traces need no matplotlib."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"dnn-balance\[plot\]"):
        gantt(timeline())


def test_trace_of_several_timelines(tmp_path: Path) -> None:
    """Each timeline is a process with its name; actions, transfers and memory have their own tracks."""
    one = timeline(2, 3)
    chrome_trace([one, one], tmp_path / "a.json", labels=["predicted", "achieved"])
    events = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "predicted", 1: "achieved"}
    first = [e for e in events if e["pid"] == 0]
    tracks = {e["args"]["name"] for e in first if e["name"] == "thread_name"}
    assert tracks == {"device 0", "device 1", "link 0 to 1", "link 1 to 0"}
    spans = [e for e in first if e["ph"] == "X"]
    assert len(spans) == one.schedule.n_actions + len(one.transfers)
    back = next(e for e in spans if e["name"] == "0B2")
    assert (back["ts"], back["dur"]) == pytest.approx((float(one.end.max() - 1) * 1e6, 1e6))
    held = [e["args"]["bytes"] for e in first if e["ph"] == "C" and e["name"] == "memory of device 0"]
    assert max(held) == one.peak_memory[0] == 2e6
    chrome_trace(one, tmp_path / "b.json")
    assert json.loads((tmp_path / "b.json").read_text())["displayTimeUnit"] == "ms"
