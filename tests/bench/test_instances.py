"""Tests of the instances and suites that campaigns know."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from balance.bench.instances import VARIABLE, SkippedError, find_instance, list_instances, problem_types
from balance.bench.suites import SUITES, cells, find_suite
from balance.problems.model.errors import OptionError

OWN = [instance for instance in list_instances() if not instance.name.startswith("public/")]


def test_names_are_unique_and_sorted() -> None:
    """A row's name says which instance it was."""
    names = [instance.name for instance in list_instances()]
    assert names == sorted(set(names))


@pytest.mark.parametrize("name", [instance.name for instance in OWN])
def test_own_instances_are_the_same_every_time(name: str) -> None:
    """Generated instances depend on their seed alone, and some problem can be stated on each."""
    instance = find_instance(name)
    assert instance.load().graph.hash == instance.load().graph.hash
    assert any(instance.problem(kind.name) is not None for kind in problem_types())


def test_scarce_memory_is_scarce() -> None:
    """The memory family is limited, and an even split of it needs about what there is."""
    problem = find_instance("small/memory-60x8").problem("chain")
    assert problem is not None
    assert np.isfinite(problem.cluster.memory_bytes).all()


def test_public_instances_are_skipped_with_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the folder, or without the file in it, the message says what to set or what is missing."""
    instance = find_instance("public/pipedream/vgg16")
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SkippedError, match=VARIABLE):
        instance.load()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(SkippedError, match=r"holds no pipedream/vgg16\.txt"):
        instance.load()


def test_public_instances_are_read(workloads: Path) -> None:
    """Every published workload that is there is read with its devices."""
    for instance in list_instances("public/"):
        try:
            assert instance.load().graph.n_operators > 0
        except SkippedError:
            continue


def test_a_broken_workload_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that cannot be read is left out with its error; everything else is planned."""
    (tmp_path / "pipedream").mkdir()
    (tmp_path / "pipedream" / "vgg16.txt").write_text("broken")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    told: list[str] = []
    assert cells(find_suite("chain"), on_skip=told.append)
    assert next(words for words in told if "vgg16" in words).startswith("left out public/pipedream/vgg16: ")
    assert len(told) == len(list_instances("public/"))


def test_unknown_names_are_answered_with_the_nearest() -> None:
    """Instances, problems and suites."""
    with pytest.raises(OptionError, match="tiny/plain-6x2"):
        find_instance("tiny/plain-6x")
    with pytest.raises(OptionError, match="chain"):
        find_instance("tiny/plain-6x2").problem("chian")
    with pytest.raises(OptionError, match="smoke"):
        find_suite("smok")


def test_smoke_runs_every_solver() -> None:
    """Each registered solver that accepts a tiny instance has a cell, and every figure is there at its small size."""
    found = cells(find_suite("smoke"))
    assert {cell.size for cell in found if cell.kind == "measure"} == {"smoke"}
    solvers = {cell.solver for cell in found if cell.kind == "solve" and cell.problem == "chain"}
    assert {"bisection", "threshold", "intervals", "counts"} <= solvers
    assert len({cell.key for cell in found}) == len(found)


def test_suites_say_what_they_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public workloads that are not here are named once each."""
    monkeypatch.delenv(VARIABLE, raising=False)
    told: list[str] = []
    cells(find_suite("chain"), on_skip=told.append)
    assert len(told) == len(list_instances("public/"))
    assert all(VARIABLE in words for words in told)
    assert {suite.name for suite in SUITES} >= {"smoke", "speed", "chain", "paper", "full"}


def test_regal_instances_follow_their_law() -> None:
    """Equal names give equal graphs; operators, ratio and devices are what the name and the law say."""
    from balance.bench import regal

    found = dict(regal.names())
    assert len(found) == sum(regal.SAMPLES.values())
    assert sum(name.startswith("k16/") for name in found) == 100
    for name in ("k16/r0.1/layered-00", "k2/r1/attention-05", "k64/r10/series-parallel-07"):
        assert name in found
        first, again = regal.build(name), regal.build(name)
        assert first.graph.hash == again.graph.hash
        assert first.cluster is not None
        assert first.cluster.n_devices == int(name.split("/")[0][1:])
        assert 40 <= first.graph.n_operators <= 550
        assert first.cluster.inter is not None
        moved = float(first.graph.tensors.bytes.sum()) / first.cluster.inter.bandwidth
        assert abs(moved / float(first.graph.forward.sum()) - float(name.split("/")[1][1:])) < 1e-9
