"""PipeDream's profiles: published files, a hand-written one, and everything that is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from balance.problems.formats import read, write
from balance.problems.model.errors import FormatError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan
from balance.problems.model.tensors import Tensor

# file, nodes, edges, seconds of all nodes, seconds without loading the input (what PipeDream's optimizer counts)
PUBLISHED = [
    ("alexnet", 23, 23, 0.721223, 0.08532),
    ("gnmt_large", 96, 122, 0.520453, 0.52045),
    ("inception_v3", 326, 362, 0.710738, 0.68904),
    ("resnet50", 177, 193, 0.462381, 0.44342),
    ("vgg16", 41, 41, 0.690507, 0.67253),
]


@pytest.mark.parametrize(("file", "nodes", "edges", "seconds", "counted"), PUBLISHED)
def test_published_profiles(workloads: Path, file: str, nodes: int, edges: int, seconds: float, counted: float) -> None:
    """Every published profile reads with its counts and time sums, with and without the input nodes."""
    instance = read(workloads / "pipedream" / f"{file}.txt")
    graph = instance.graph
    assert (graph.n_operators, graph.tensors.n_pins, graph.style) == (nodes, edges, "layers")
    times = graph.forward[0, 0] + graph.backward[0, 0]
    assert times.sum() == pytest.approx(seconds, abs=1e-9)
    loading = [text.startswith("Input") for text in graph.source["descriptions"]]
    assert times[~np.array(loading)].sum() == pytest.approx(counted, abs=1e-5)
    assert (instance.cluster, instance.preset) == (None, "pipedream-2019")
    assert any("optimizer leaves out" in note for note in instance.notes) == (seconds - counted > 1e-5)


@pytest.mark.parametrize("file", [row[0] for row in PUBLISHED])
def test_published_profiles_round_trip(workloads: Path, tmp_path: Path, file: str) -> None:
    """Writing gives back the same graph, source and edges; numbers lose their trailing zeros only."""
    path = workloads / "pipedream" / f"{file}.txt"
    instance = read(path)
    write(instance, tmp_path / path.name)
    assert read(tmp_path / path.name).graph == instance.graph
    assert read(tmp_path / path.name).graph.source == instance.graph.source
    old, new = (
        [line for line in text.split("\n") if line.startswith("\t")]
        for text in (path.read_text(), (tmp_path / path.name).read_text())
    )
    assert sorted(old) == sorted(new)


def test_the_small_profile(small: Path) -> None:
    """Units, lists, descriptions with separators, stage ids and shared tensors read as stated."""
    instance = read(small / "small_pipedream.txt")
    graph = instance.graph
    assert graph.names == ("node1", "node2", "node3", "node4")
    assert graph.source["descriptions"][1] == "LSTM(8, 8) -- bidirectional, (layer1): LSTM(8, 8)"
    assert graph.forward[0, 0].tolist() == [0.002, 0.0015, 0.000539, 0.000001]
    assert graph.backward[0, 0].tolist() == [0.0, 0.003, 0.001078, 0.0]
    assert graph.activation_bytes[0].tolist() == [0.0, 100.0, 128.0, 128.0]
    assert graph.parameter_bytes[0].tolist() == graph.sync_bytes[0].tolist() == [0.0, 512.0, 256.0, 0.0]
    assert [t.consumers for t in graph.tensors] == [(1,), (2, 3), (3,)]
    assert graph.tensors.bytes.tolist() == graph.tensors.gradient_bytes.tolist() == [0.0, 100.0, 128.0]
    assert graph.source["stage_id"] == [None, 0, 1, 1]
    assert "split into 2 stages" in instance.notes[0]
    assert "node1) takes 0.002 s" in instance.notes[1]


def test_a_plan_is_written_as_stage_ids(small: Path, tmp_path: Path) -> None:
    """With a plan every line ends with its stage, and it reads back."""
    instance = read(small / "small_pipedream.txt")
    write(instance, tmp_path / "p.txt", solution=Plan.chain([0, 1, 1, 4]))
    assert read(tmp_path / "p.txt").graph.source["stage_id"] == [0, 2, 2, 2]
    assert " -- stage_id=2\n" in (tmp_path / "p.txt").read_text()


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        (Plan.chain([0, 3]), "'node4' is in no stage"),
        (Plan.chain([0, 5]), "does not have"),
        (Assignment([0, 0, 0, 0]), "no order"),
    ],
)
def test_solutions_without_stages_are_refused(
    small: Path, tmp_path: Path, solution: Plan | Assignment, message: str
) -> None:
    """Stage ids need a plan of all operators."""
    with pytest.raises(FormatError, match=message):
        write(read(small / "small_pipedream.txt"), tmp_path / "p.txt", solution=solution)


GOOD = "forward_compute_time=1.0, backward_compute_time=1.0, activation_size=1.0, parameter_size=1.0"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (f"a -- A -- {GOOD}\na -- A -- {GOOD}", 2, "there twice"),
        (f"a -- A -- {GOOD}\n\n\ta -- b", 3, "'b', which does not exist"),
        (f"a -- A -- {GOOD}\n\ta -- a", 2, "itself"),
        (f"a -- A -- {GOOD}\n\ta -- a -- a", 2, "expected an edge"),
        (f"a -- A -- {GOOD}\nb -- B", 2, "expected 'node"),
        (f"a -- A -- {GOOD.replace('activation', 'action')}", 1, "expected forward_compute_time"),
        (f"a -- A -- {GOOD}, color=3", 1, "got forward_compute_time"),
        (f"a -- A -- {GOOD.replace('1.0', 'nan')}", 1, "expected a number, got 'nan'"),
        (f"a -- A -- {GOOD.replace('1.0', '1_0')}", 1, "expected a number"),
        (f"a -- A -- {GOOD.replace('1.0', '-1')}", 1, "not negative"),
        (f"a -- A -- {GOOD.replace('1.0', '1e999')}", 1, "finite"),
        (f"a -- A -- {GOOD.replace('size=1.0', 'size=[1.0; x]')}", 1, "expected a number, got 'x'"),
        (f"a -- A -- {GOOD.replace('size=1.0', 'size=[1e308; 1e308]')}", 1, "add up to more"),
        (f"a -- A -- {GOOD.replace('activation_size=1.0', 'activation_size=[1e308; 1e308]')}", 1, "add up to more"),
        (f"a -- A -- {GOOD} -- stage_id=x", 1, "stage number"),
        (f"a -- A -- {GOOD}\nb -- B -- {GOOD}\n\ta -- b\n\tb -- a", None, "cycle"),
        ("\n\n", None, "no nodes"),
    ],
)
def test_broken_profiles_name_the_line(tmp_path: Path, text: str, line: int | None, message: str) -> None:
    """Each defect is named with its line."""
    path = tmp_path / "p.txt"
    path.write_text(text)
    with pytest.raises(FormatError, match=message) as caught:
        read(path, "pipedream")
    assert line is None or caught.value.line == line
    assert caught.value.path == str(path)


def test_both_forms_of_the_stage_field_and_doubled_edges(tmp_path: Path) -> None:
    """A stage after a comma is read as well; an edge given twice counts once and is noted."""
    path = tmp_path / "p.txt"
    path.write_text(f"a -- A -- {GOOD}, stage_id=3\nb --  -- {GOOD}\n\ta -- b\n\ta -- b\n")
    instance = read(path)
    assert instance.graph.source["stage_id"] == [3, None]
    assert instance.graph.source["descriptions"] == ["A", ""]
    assert instance.graph.n_tensors == 1
    assert "1 doubled edges" in instance.notes[1]


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (CostGraph.chain({"a": [1.0], "b": [1.0]}), "one device kind"),
        (CostGraph.chain([1.0, np.inf]), "finite times"),
        (CostGraph.chain([1.0], colocation=["x"]), "colocation"),
        (CostGraph.chain([1.0], workspace_bytes=1.0), "workspace"),
        (CostGraph.chain([1.0], sync_bytes=1.0), "sync_bytes"),
        (CostGraph.chain([1.0, 1.0], seconds=1.0), "not times"),
        (CostGraph.chain([1.0, 1.0], bytes=1.0), "as large as their producer's activations"),
        (CostGraph.chain([1.0, 1.0], is_backward=[False, True]), "backward operators"),
        (CostGraph(forward=[1.0, 1.0, 1.0], tensors=[Tensor(0, (1,)), Tensor(0, (2,))]), "one tensor per producer"),
        (
            CostGraph.chain([1.0, 1.0], backward=1.0, bytes=2.0, gradient_bytes=1.0, activation_bytes=2.0),
            "gradients as large",
        ),
        (CostGraph.chain([1.0], names=["a\nb"]), "one line"),
    ],
)
def test_what_the_format_cannot_say_is_refused(tmp_path: Path, graph: CostGraph, message: str) -> None:
    """Writing never drops a part of the graph in silence."""
    with pytest.raises(FormatError, match=message):
        write(graph, tmp_path / "x.txt")


def test_other_graphs_are_written_with_names_as_descriptions(tmp_path: Path) -> None:
    """Names with spaces, or none at all, still give a readable profile."""
    graph = CostGraph.chain([0.5, 0.25], bytes=4.0, activation_bytes=4.0, names=["a b", "{c"])
    write(graph, tmp_path / "x.txt")
    back = read(tmp_path / "x.txt").graph
    assert back.source["descriptions"] == ["a b", "{c"]
    assert back.forward.tolist() == graph.forward.tolist()
    assert back.tensors.bytes.tolist() == [4.0]
