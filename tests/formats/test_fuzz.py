"""Broken input: whatever is done to a file, it reads to something that can be written again, or gives a FormatError."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.formats import read, write
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.errors import FormatError
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan, Replica, Stage

pytestmark = pytest.mark.fuzz

# Values that stand where another was expected. Strings with @ become raw tokens that no JSON writer would make.
HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e308, 2**53 + 1, 2**62, 2**63, 10**30, 10**400, "", "x", "1",
    "\ud800", "\x00", "fpgas", [], [0], [None], [[]], [1e308, 1e308], {}, {"a": 1}, {"": None},
    "@NaN@", "@Infinity@", "@1e999@", "@-1e999@", "@" + "9" * 5000 + "@",
    "@" + "[" * 200 + "]" * 200 + "@", "@" + '{"a":' * 90 + "1" + "}" * 90 + "@",
]  # fmt: skip
FILES = {
    "small_device_placement.json": "device-placement",
    "small_piper.json": "piper",
    "layer_graph.json": "native",
    "operator_graph.json": "native",
    "small_pipedream.txt": "pipedream",
    "columns.json": "native",
    "instance.json": "native",
    "matrix.json": "native",
}
JSON_FILES = [name for name in FILES if name.endswith(".json")]


@pytest.fixture(scope="module")
def texts(small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return valid files to break: the hand-written ones and what we write ourselves."""
    folder = tmp_path_factory.mktemp("valid")
    graph = CostGraph.from_json(json.loads((small / "layer_graph.json").read_text()))
    write(graph.replace(source={"a": [1, {"b": 2.5}]}), folder / "columns.json")
    placement = read(small / "small_device_placement.json")
    write(placement, folder / "instance.json", "native")
    matrix = Cluster([Device(host="h", price=1.0), Device()], latency=[[0, 1], [2, 0]], bandwidth=[[1, 3], [4, 1]])
    write(Instance(graph, matrix, "p", {"microbatches": 2}, notes=("n",)), folder / "matrix.json")
    return {name: ((small if (small / name).exists() else folder) / name).read_text() for name in FILES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all examples share."""
    return tmp_path_factory.mktemp("broken")


def holds(folder: Path, content: str | bytes, format: str | None) -> None:
    """Check the one promise: a FormatError with the path, or an instance that survives writing and reading."""
    path = folder / "file.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    refused: FormatError | None = None
    try:
        instance = read(path, format)
    except FormatError as error:
        refused = error
    if refused is not None:
        assert refused.path == str(path)
        assert str(refused).startswith(str(path))
        return
    for target in {"native", str(instance.format)}:
        try:
            write(instance, folder / "again", target)
        except FormatError:
            assert target != "native"  # a foreign format may be unable to say what a broken file says
            continue
        again = read(folder / "again", target)
        assert again.graph == instance.graph
        assert again.cluster == instance.cluster
        assert again.parameters == instance.parameters


def dumped(data: Any) -> str:
    """Return JSON text with the raw tokens put in."""
    text = json.dumps(data)
    for value in HOSTILE:
        if isinstance(value, str) and value.startswith("@"):
            text = text.replace(json.dumps(value), value[1:-1])
    return text


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a JSON document."""
    found = [path] if path else []
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        found += places(value, (*path, key))
    return found


@given(data=st.data())
def test_changed_values(texts: dict[str, str], folder: Path, data: st.DataObject) -> None:
    """Replace, delete, double or move values anywhere in a JSON file, up to three times."""
    name = data.draw(st.sampled_from(JSON_FILES))
    document = json.loads(texts[name])
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(document)))
        inner = document
        for key in path[:-1]:
            inner = inner[key]
        key, action = path[-1], data.draw(st.sampled_from(["replace", "replace", "delete", "double", "rename"]))
        if action == "replace":
            inner[key] = copy.deepcopy(data.draw(st.sampled_from(HOSTILE)))
        elif action == "delete":
            del inner[key]
        elif isinstance(inner, list):
            inner.append(json.loads(json.dumps(inner[key])))
        else:
            inner[str(key) + data.draw(st.sampled_from(["", "x", "\ud800", "bytes"]))] = inner.pop(key)
        if not document:
            break
    holds(folder, dumped(document), data.draw(st.sampled_from([None, FILES[name]])))


@given(data=st.data())
def test_changed_bytes(texts: dict[str, str], folder: Path, data: st.DataObject) -> None:
    """Cut, overwrite, double and insert bytes anywhere in any file."""
    name = data.draw(st.sampled_from(sorted(FILES)))
    content = texts[name].encode()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        end = min(len(content), at + data.draw(st.integers(0, 12)))
        piece = data.draw(
            st.sampled_from([b"", content[at:end] * 2, b"\x00", b"\xff", b"-", b"9", b'"', b"[", b"}", b" "])
        )
        content = content[:at] + piece + content[end:]
    holds(folder, content, data.draw(st.sampled_from([None, FILES[name]])))


@given(data=st.data())
def test_cut_files(texts: dict[str, str], folder: Path, data: st.DataObject) -> None:
    """Cut a file off anywhere, as an interrupted download does."""
    name = data.draw(st.sampled_from(sorted(FILES)))
    holds(
        folder,
        texts[name][: data.draw(st.integers(0, len(texts[name])))],
        data.draw(st.sampled_from([None, FILES[name]])),
    )


@given(data=st.data())
def test_changed_lines(texts: dict[str, str], folder: Path, data: st.DataObject) -> None:
    """Drop, double, swap and edit the lines and fields of a profile."""
    lines = texts["small_pipedream.txt"].split("\n")
    for _ in range(data.draw(st.integers(1, 4))):
        i, j = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        action = data.draw(st.sampled_from(["swap", "double", "join", "edit", "edit"]))
        if action == "swap":
            lines[i], lines[j] = lines[j], lines[i]
        elif action == "double":
            lines.insert(i, lines[j])
        elif action == "join":
            lines[i] += " -- " + lines[j]
        else:
            cells = lines[i].split(data.draw(st.sampled_from([" -- ", ", ", "=", "; "])))
            cells[data.draw(st.integers(0, len(cells) - 1))] = data.draw(
                st.sampled_from(
                    [
                        "",
                        " ",
                        "nan",
                        "-1",
                        "1e999",
                        "[",
                        "[]",
                        "[1; 2",
                        "1_0",
                        "٣",
                        "\u2028",
                        "node1",
                        "9" * 500,
                        "1e-400",
                    ]
                )
            )
            lines[i] = data.draw(st.sampled_from([" -- ", ", ", "=", "; "])).join(cells)
    holds(folder, "\n".join(lines), data.draw(st.sampled_from([None, "pipedream"])))


@given(
    content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
)
def test_noise(folder: Path, content: bytes) -> None:
    """Arbitrary bytes and text, under every format's name."""
    for format in (None, *sorted(set(FILES.values()))):
        holds(folder, content, format)


@given(value=st.recursive(st.sampled_from(HOSTILE), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["schema", "version", "nodes", "edges", "operators", "tensors", "id", "TMPCs", "graph", "name"]),
    inner, max_size=3), max_leaves=12))  # fmt: skip
def test_foreign_json(folder: Path, value: Any) -> None:
    """JSON of any shape, under every format's name."""
    for format in (None, "native", "device-placement", "piper"):
        holds(folder, dumped(value), format)


def test_large_random_files_read_and_round_trip(folder: Path) -> None:
    """Random valid workloads of a few hundred nodes survive reading, writing and reading."""
    for seed in range(10):
        rng = random.Random(seed)
        n = rng.randint(1, 300)
        ids = rng.sample(range(-1000, 1000), n)
        cost = [round(rng.random(), rng.randint(0, 17)) for _ in ids]
        pairs = [(u, v) for u in range(n) for v in range(u + 1, min(n, u + 4)) if rng.random() < 0.5]
        rng.shuffle(pairs)
        nodes = [
            {"id": i, "supportedOnFpga": rng.random() < 0.9, "cpuLatency": 10 * rng.random(),
             "fpgaLatency": rng.random(), "isBackwardNode": rng.random() < 0.2, "size": rng.randint(0, 9),
             "colorClass": rng.randint(-3, 9)}
            for i in ids
        ]  # fmt: skip
        edges = [{"sourceId": ids[u], "destId": ids[v], "cost": cost[u], "size": rng.randint(0, 5)} for u, v in pairs]
        content = json.dumps({"maxSizePerFPGA": 99, "maxFPGAs": 2, "maxCPUs": 1, "nodes": nodes, "edges": edges})
        holds(folder, content, None)
        assert read(folder / "file.json").graph.tensors.n_pins == len(pairs)


@given(data=st.data())
def test_model_files(folder: Path, data: st.DataObject) -> None:
    """Plans, assignments and clusters read the same way: a FormatError or an object that survives a round trip."""
    plan = Plan(
        (
            Stage([0, 1, 2, 3], (Replica((0, 2), 0.25), Replica((1,), 0.75))),
            Stage([4, 6], (Replica((3,)),), [0, 1], True, 0),
        ),
        4,
    )
    cluster = Cluster(
        [Device("a", 1.0, 2.0, 3.0, "n", "h"), Device("b")], latency=[[0, 1], [1, 0]], bandwidth=[[1, 1], [1, 1]]
    )
    written = [
        (Plan, plan.to_json()),
        (Assignment, Assignment([0, 1]).to_json()),
        (Cluster, cluster.to_json()),
        (Cluster, Cluster.uniform(3, bandwidth=1.0).to_json()),
        (Cluster, {"devices": [{"count": 2}]}),
    ]
    kind, document = data.draw(st.sampled_from(written))
    document = json.loads(json.dumps(document))
    for _ in range(data.draw(st.integers(1, 3))):
        *outer, key = data.draw(st.sampled_from(places(document)))
        inner = document
        for step in outer:
            inner = inner[step]
        inner[key] = copy.deepcopy(data.draw(st.sampled_from(HOSTILE)))
    try:
        value = kind.from_json(document)
    except FormatError:
        return
    assert kind.from_json(json.loads(json.dumps(value.to_json()))) == value
