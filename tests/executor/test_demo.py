"""The demo from start to end, on a model small enough for a test."""

from __future__ import annotations

import itertools

import pytest

from balance.executor import demo
from balance.executor.demo import Effort, even_cuts


def test_even_cuts():
    """An even split differs by at most one module between stages."""
    for modules in range(3, 12):
        for stages in range(1, 4):
            cuts = even_cuts(modules, stages)
            sizes = [b - a for a, b in itertools.pairwise(cuts)]
            assert (cuts[0], cuts[-1], len(sizes)) == (0, modules, stages)
            assert max(sizes) - min(sizes) <= 1


def test_demo_runs_both_plans(tmp_path, monkeypatch, capsys):
    """Profile, solve, run and page work together; what is printed names both plans and the proof."""
    monkeypatch.setattr(demo, "VOCABULARY", 512)
    monkeypatch.setattr(demo, "CONTEXT", 16)
    monkeypatch.setattr(demo, "WIDTH", 32)
    reports = demo.demonstrate(tmp_path, Effort(microbatches=2, microbatch_size=2, repeats=2), steps=3)
    shown = capsys.readouterr().out
    assert list(reports) == ["even split", "our plan"]
    assert [len(stage.operators) for stage in reports["even split"].plan.stages] == [4, 4]
    assert all(report.error is not None and report.steps == 3 for report in reports.values())
    assert "our plan: optimal by" in shown
    assert "gap 0 %" in shown
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "even split" in page
    assert (tmp_path / "our-plan" / "report.json").exists()


def test_demo_says_what_is_wrong(capsys):
    """Too few steps give a message and an exit code, no traceback."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "Ranks", None)  # nothing is started for a request that cannot work
        assert demo.main(["--steps", "1"]) == 1
    assert "--steps must be at least 2" in capsys.readouterr().err
