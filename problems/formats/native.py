"""Format room: our own JSON, a graph alone or a whole instance."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from balance.problems.formats._rows import dumped
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import FormatError
from balance.problems.model.fields import Fields, plain
from balance.problems.model.files import parse_json
from balance.problems.model.graph import CostGraph
from balance.problems.model.graph_json import SCHEMA as GRAPH_SCHEMA
from balance.problems.model.plan import Assignment, Plan

NAME = "native"
SUFFIXES = (".json",)
DESCRIPTION = """\
The project's own JSON. A file holds either a graph alone (`"schema": "dnn-balance/graph"`, what
`CostGraph.save` writes) or an instance (`"schema": "dnn-balance/instance"`, `"version": 1`) with the
fields `graph`, `cluster`, `preset`, `parameters`, `name` and `notes`; all but `graph` may be left out.
Times are seconds, sizes bytes, bandwidths bytes per second. Infinity is written as `null`. A graph is
written in columns and may be written by hand in rows: `operators` as a list of objects with the fields of
`Operator`, `tensors` as a list of objects with the fields of `Tensor`. The stored `hash`, if present,
must match the content. Everything is kept and nothing is lost (lists among the parameters read back as
tuples); plans and results have files of their own (`Plan.save`, `Result.save`)."""

SCHEMA = "dnn-balance/instance"
VERSION = 1
_MARKER = re.compile(r'"schema"\s*:\s*"dnn-balance/')


def sniff(text: str, path: str) -> bool:
    """Return whether the text carries one of our schema names."""
    return _MARKER.search(text) is not None


def read_text(text: str, path: str) -> Instance:
    """Build an instance from a graph file or an instance file.

    Raises
    ------
    FormatError
        If a field is missing, unknown or malformed.
    """
    data = parse_json(text, path)
    top = Fields(data)
    if top.text("schema") == GRAPH_SCHEMA:
        graph = CostGraph.from_json(data)
        return Instance(graph, name=graph.name)
    top.schema(SCHEMA, VERSION)
    graph = _part(CostGraph, top, "graph")
    cluster = _part(Cluster, top, "cluster") if top.has("cluster") else top.take("cluster", None)
    parameters = top.take("parameters", {})
    if not isinstance(parameters, dict):
        top.fail("parameters", "expected an object")
    notes = top.items("notes", [])
    for i, note in enumerate(notes):
        if not isinstance(note, str):
            raise FormatError("expected a string", field=f"notes[{i}]")
    preset, name = top.text("preset", None), top.text("name", graph.name)
    top.done()
    return Instance(
        graph,
        cluster,
        preset,
        {key: _restored(plain(value, f"parameters.{key}")) for key, value in parameters.items()},
        name=name,
        notes=tuple(notes),
    )


def write_text(instance: Instance, solution: Plan | Assignment | None = None) -> str:
    """Return the text of a graph file where the instance holds nothing else, else of an instance file.

    Raises
    ------
    FormatError
        If a solution is given, or a parameter is not a JSON value.
    """
    if solution is not None:
        raise FormatError("our own JSON keeps solutions in files of their own: use Plan.save or Result.save")
    graph = instance.graph.to_json()
    alone = not (instance.cluster or instance.preset or instance.parameters or instance.notes)
    if alone and instance.name in ("", instance.graph.name):
        return dumped(graph)
    return dumped(
        {
            "schema": SCHEMA,
            "version": VERSION,
            "name": instance.name,
            "preset": instance.preset,
            "parameters": {key: _jsonable(value, key) for key, value in instance.parameters.items()},
            "notes": list(instance.notes),
            "cluster": None if instance.cluster is None else instance.cluster.to_json(),
            "graph": graph,
        }
    )


def _part(kind: type[Any], top: Fields, name: str) -> Any:
    try:
        return kind.from_json(top.take(name))
    except FormatError as error:
        field = f"{name}.{error.field}" if error.field else name
        raise FormatError(error.reason, field=field, **error.facts) from None


def _jsonable(value: Any, key: str) -> Any:
    if isinstance(value, (tuple, list)):
        return [_jsonable(cell, key) for cell in value]
    if isinstance(value, Mapping):
        other = next((k for k in value if not isinstance(k, str)), None)
        if other is not None:
            raise FormatError(f"holds the key {other!r}; JSON has only texts as keys", field=f"parameters.{key}")
        return {k: _jsonable(cell, key) for k, cell in value.items()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return plain(value, f"parameters.{key}")
    raise FormatError(f"{type(value).__name__} is not a JSON value", field=f"parameters.{key}")


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_restored(cell) for cell in value)
    if isinstance(value, dict):
        return {key: _restored(cell) for key, cell in value.items()}
    return value
