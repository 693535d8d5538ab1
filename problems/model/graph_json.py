"""Model room: cost graphs as JSON, in columns (what `save` writes) or in rows (what people write)."""

from __future__ import annotations

from typing import Any

import numpy as np

from balance.problems.model.errors import FormatError, GraphError
from balance.problems.model.fields import Fields, integer, numbers, plain
from balance.problems.model.graph import BYTES, TIMES, Configuration, CostGraph, Operator
from balance.problems.model.tensors import FloatArray, Tensor, Tensors

SCHEMA = "dnn-balance/graph"
VERSION = 1
LARGEST_TABLE = 50_000_000
"""Cells; a file whose counts ask for larger tables is refused instead of filling the memory."""


def graph_to_json(graph: CostGraph) -> dict[str, Any]:
    """Return the column form; infinity is null, a constant column is one number."""
    tensors = graph.tensors
    operators: dict[str, Any] = {"count": graph.n_operators}
    if graph.names is not None:
        operators["names"] = list(graph.names)
    for key in TIMES:
        table = getattr(graph, key)
        if table is not None:
            operators[key] = [[_packed(column) for column in kind] for kind in table]
    for key in BYTES:
        table = getattr(graph, key)
        if table.any():
            operators[key] = [_packed(column) for column in table]
    for key in ("colocation", "pinned"):
        labels = getattr(graph, key)
        if (labels >= 0).any():
            operators[key] = [None if label < 0 else int(label) for label in labels]
    if graph.is_backward.any():
        operators["is_backward"] = [bool(flag) for flag in graph.is_backward]
    columns: dict[str, Any] = {
        "producer": tensors.producer.tolist(),
        "consumers": [tensors.consumers_of(t).tolist() for t in range(len(tensors))],
    }
    for key in ("bytes", "gradient_bytes", "seconds", "gradient_seconds"):
        column = getattr(tensors, key)
        if not np.isnan(column).all():
            columns[key] = _packed(column, absent=np.nan)
    if tensors.names is not None:
        columns["names"] = list(tensors.names)
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "name": graph.name,
        "kinds": list(graph.kinds),
        "configurations": [
            {"tensor_parallel": c.tensor_parallel, "recompute": c.recompute, "microbatch_size": c.microbatch_size}
            for c in graph.configurations
        ],
        "operators": operators,
        "tensors": columns,
        "source": graph.source,
        "hash": graph.hash,
    }


def _packed(column: FloatArray, absent: float = np.inf) -> Any:
    if len(column) > 1 and (column == column[0]).all() and np.isfinite(column[0]):
        return float(column[0])
    missing = np.isnan(column) if np.isnan(absent) else np.isinf(column)
    if not missing.any():
        return column.tolist()
    return [None if gone else float(cell) for cell, gone in zip(column, missing, strict=True)]


def graph_from_json(data: Any) -> CostGraph:
    """Build a graph from either form.

    Raises
    ------
    FormatError
        If a field is missing, unknown or malformed, the graph breaks a rule, or the stored hash does not match.
    """
    top = Fields(data)
    top.schema(SCHEMA, VERSION)
    kinds = [_string(kind, f"kinds[{k}]") for k, kind in enumerate(top.items("kinds", []))]
    configurations = [_configuration(c, i) for i, c in enumerate(top.items("configurations", [{}]))]
    name, source, stored = top.text("name", ""), top.take("source", {}), top.text("hash", None)
    if not isinstance(source, dict):
        top.fail("source", "expected an object")
    plain(source, "source")
    by_columns = isinstance(top.data.get("operators"), dict)
    try:
        if by_columns:
            graph = _from_columns(top, kinds, configurations, name, source)
        else:
            graph = _from_rows(top, kinds, configurations, name, source)
    except GraphError as error:
        raise FormatError(error.message, **error.facts) from None
    top.done()
    if stored is not None and stored != graph.hash:
        top.fail(
            "hash", "does not match the content: it was changed since it was written (remove the field to accept it)"
        )
    return graph


def _from_columns(
    top: Fields, kinds: list[str], configurations: list[Configuration], name: str, source: dict[str, Any]
) -> CostGraph:
    operators = top.inner("operators")
    names = operators.items("names", None)
    n = operators.integer("count", None if names is None else len(names))
    if n is None:
        operators.fail("count", "is missing")
    if names is not None and len(names) != n:
        operators.fail("names", f"has {len(names)} entries, expected {n}")
    kind_names = kinds or ["device"]
    if n * len(kind_names) * len(configurations) > LARGEST_TABLE:
        operators.fail("count", f"asks for tables of more than {LARGEST_TABLE} entries")
    tables: dict[str, Any] = {}
    for key in TIMES:
        value = operators.take(key, None)
        if value is None:
            if key == "forward":
                operators.fail(key, "is missing")
            tables[key] = 0.0 if key == "backward" else None
            continue
        where = operators.path(key)
        if not isinstance(value, list) or len(value) != len(kind_names):
            raise FormatError(f"expected one list per kind ({len(kind_names)})", field=where)
        rows = [_columns(row, f"{where}[{k}]", len(configurations), n, np.inf) for k, row in enumerate(value)]
        tables[key] = np.array(rows)
    for key in BYTES:
        value = operators.take(key, None)
        tables[key] = 0.0 if value is None else _columns(value, operators.path(key), len(configurations), n, None)
    for key in ("colocation", "pinned"):
        labels = operators.items(key, None)
        if labels is not None:
            tables[key] = [
                None if label is None else integer(label, f"{operators.path(key)}[{i}]", least=-1)
                for i, label in enumerate(labels)
            ]
    flags = operators.items("is_backward", None)
    if flags is not None:
        where = operators.path("is_backward")
        for i, flag in enumerate(flags):
            if not isinstance(flag, bool):
                raise FormatError("expected true or false", field=f"{where}[{i}]")
        tables["is_backward"] = flags
    operators.done()
    return CostGraph(
        **tables,
        kinds=kind_names,
        configurations=configurations,
        names=None if names is None else [_string(s, f"{operators.path('names')}[{i}]") for i, s in enumerate(names)],
        tensors=_tensor_columns(top),
        name=name,
        source=source,
    )


def _columns(value: Any, where: str, configurations: int, n: int, null: float | None) -> FloatArray:
    if not isinstance(value, list) or len(value) != configurations:
        raise FormatError(f"expected one column per configuration ({configurations})", field=where)
    return np.array([numbers(column, f"{where}[{c}]", length=n, null=null) for c, column in enumerate(value)])


def _tensor_columns(top: Fields) -> Tensors:
    columns = top.inner("tensors")
    producer = _integers(columns.items("producer"), columns.path("producer"))
    count = len(producer)
    where = columns.path("consumers")
    readers = columns.items("consumers")
    if len(readers) != count:
        raise FormatError(f"has {len(readers)} entries, expected {count}", field=where)
    rows = [_integers(row, f"{where}[{t}]") for t, row in enumerate(readers)]
    given: dict[str, Any] = {}
    for key in ("bytes", "gradient_bytes", "seconds", "gradient_seconds"):
        value = columns.take(key, None)
        given[key] = None if value is None else numbers(value, columns.path(key), length=count, null=np.nan)
    names = columns.items("names", None)
    for t, name in enumerate(names or ()):
        if name is not None:
            _string(name, f"{columns.path('names')}[{t}]")
    columns.done()
    return Tensors(
        np.array(producer, dtype=np.int64),
        np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64))),
        np.array([c for row in rows for c in row], dtype=np.int64),
        0.0 if given["bytes"] is None else given["bytes"],
        gradient_bytes=given["gradient_bytes"],
        seconds=given["seconds"],
        gradient_seconds=given["gradient_seconds"],
        names=names,
    )


def _from_rows(
    top: Fields, kinds: list[str], configurations: list[Configuration], name: str, source: dict[str, Any]
) -> CostGraph:
    if configurations != [Configuration()]:
        top.fail("configurations", "the row form holds one plain configuration; use the column form for several")
    operators = [_operator(row, i) for i, row in enumerate(top.items("operators"))]
    tensors = [_tensor(row, t) for t, row in enumerate(top.items("tensors", []))]
    return CostGraph.from_operators(operators, tensors, kinds=kinds or None, name=name, source=source)


def _operator(data: Any, i: int) -> Operator:
    row = Fields(data, f"operators[{i}]")
    cells: dict[str, Any] = {"name": row.text("name", f"#{i}")}
    for key in TIMES:
        value = row.take(key, None)
        if isinstance(value, dict):
            inner = Fields(value, row.path(key))
            cells[key] = {kind: inner.number(kind) for kind in value}
        elif value is not None:
            cells[key] = row.number(key)
        elif key == "forward":
            row.fail(key, "is missing (seconds, or an object of seconds by device kind)")
    for key in BYTES:
        cells[key] = row.number(key, 0.0)
    label = row.take("colocation", None)
    if label is not None and (isinstance(label, bool) or not isinstance(label, (str, int))):
        row.fail("colocation", "expected a string or an integer")
    cells["colocation"] = label
    cells["pinned"] = row.integer("pinned", None)
    cells["is_backward"] = row.flag("is_backward", False)
    row.done()
    return Operator(**cells)


def _tensor(data: Any, t: int) -> Tensor:
    row = Fields(data, f"tensors[{t}]")
    readers = row.take("consumers")
    tensor = Tensor(
        _reference(row.take("producer"), row.path("producer")),
        tuple(
            _reference(c, f"{row.path('consumers')}[{i}]")
            for i, c in enumerate(readers if isinstance(readers, list) else [readers])
        ),
        row.number("bytes", 0.0),
        row.number("gradient_bytes", None),
        row.number("seconds", None),
        row.number("gradient_seconds", None),
        row.text("name", None),
    )
    row.done()
    return tensor


def _configuration(data: Any, i: int) -> Configuration:
    row = Fields(data, f"configurations[{i}]")
    configuration = Configuration(
        row.integer("tensor_parallel", 1, least=1), row.flag("recompute", False), row.number("microbatch_size", None)
    )
    row.done()
    return configuration


def _reference(value: Any, where: str) -> int | str:
    return value if isinstance(value, str) else integer(value, where)


def _integers(value: Any, where: str) -> list[int]:
    if not isinstance(value, list):
        raise FormatError("expected a list of operators", field=where)
    return [integer(cell, f"{where}[{i}]") for i, cell in enumerate(value)]


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise FormatError("expected a string", field=where)
    return value
