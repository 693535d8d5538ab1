"""Format room: reading and writing files of graphs and instances, one module per file format.

A module of this folder whose name does not start with an underscore is a format; nothing else has to be
edited. It has the constants ``NAME``, ``SUFFIXES`` (the first format with a suffix is its default for
writing) and ``DESCRIPTION`` (Markdown), and the functions ``sniff(text, path)``, ``read_text(text, path)`` and, if it
can write, ``write_text(instance, solution)``.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from balance.problems.formats._losses import losses
from balance.problems.instance import Instance
from balance.problems.model.errors import ClusterError, FormatError, GraphError, OptionError
from balance.problems.model.fields import nearest
from balance.problems.model.files import read_text, write_text
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import Assignment, Plan

__all__ = ["Format", "list_formats", "read", "write"]


@dataclass(frozen=True)
class Format:
    """One file format.

    Parameters
    ----------
    name
        What `read` and `write` call it.
    suffixes
        File name endings it is usually found under.
    description
        Markdown: what it is, its units, what is kept and what is lost.
    writes
        Whether it can be written.
    module
        The module that implements it.
    """

    name: str
    suffixes: tuple[str, ...]
    description: str
    writes: bool
    module: Any = dataclasses.field(repr=False, compare=False)


@cache
def _formats() -> tuple[Format, ...]:
    found = []
    for entry in pkgutil.iter_modules(__path__):
        if entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{entry.name}")
        found.append(
            Format(module.NAME, tuple(module.SUFFIXES), module.DESCRIPTION, hasattr(module, "write_text"), module)
        )
    # Our own format comes first: it carries a schema name and cannot be mistaken.
    return tuple(sorted(found, key=lambda f: (f.name != "native", f.name)))


def list_formats() -> tuple[Format, ...]:
    """Return every file format, our own first.

    Examples
    --------
    >>> [format.name for format in list_formats()]
    ['native', 'device-placement', 'pipedream', 'piper']
    """
    return _formats()


def read(path: str | Path, format: str | None = None) -> Instance:
    """Read a file of any known format.

    Parameters
    ----------
    path
        The file.
    format
        Name of its format; None: found out from its content, then from its name's ending.

    Returns
    -------
    Instance
        In SI units, with the file's own devices and preset where the format has them.

    Raises
    ------
    FormatError
        If the file cannot be read, is of no known format or is broken; with path and line or field.
    OptionError
        If there is no format of this name.
    """
    where = str(path)
    chosen = None if format is None else _named(format)
    text = read_text(path)
    if chosen is None:
        chosen = _sniffed(text, where)
    instance = _parsed(chosen, text, where)
    return dataclasses.replace(instance, name=instance.name or Path(where).stem, format=chosen.name, path=where)


def write(
    thing: Instance | CostGraph,
    path: str | Path,
    format: str | None = None,
    *,
    solution: Plan | Assignment | None = None,
) -> tuple[str, ...]:
    """Write an instance, a graph, or (in formats that have such files) a solution of it.

    Parameters
    ----------
    thing
        What to write.
    path
        The file; it is replaced only when the new one is complete.
    format
        Name of the format; None: the first one with the path's suffix, our own JSON if there is none.
    solution
        A plan or assignment of the instance, written in the format's own form of an answer.

    Returns
    -------
    tuple of str
        What the file does not keep, a sentence each: the text is read back before it is written and compared with
        what was given. Our own format keeps everything.

    Raises
    ------
    FormatError
        If the format cannot express it; the message says what stands in the way.
    OptionError
        If there is no format of this name, or `thing` is neither an instance nor a graph.
    OSError
        If the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    fitting = [f for f in _formats() if f.writes and suffix in f.suffixes]
    chosen = _named(format) if format is not None else (fitting or _formats())[0]
    if not chosen.writes:
        raise FormatError(f"files of format {chosen.name!r} can be read but not written", path=str(path))
    instance = Instance(thing, name=thing.name) if isinstance(thing, CostGraph) else thing
    if not isinstance(instance, Instance):
        raise OptionError(f"an Instance or a CostGraph can be written to {path}, got {type(thing).__name__}")
    try:
        text: str = chosen.module.write_text(instance, solution)
    except FormatError as error:
        raise FormatError(error.reason, path=str(path), field=error.field, **error.facts) from None
    # A solution may have a file of another form, and our own format keeps everything.
    compared = solution is None and chosen.name != "native"
    lost = losses(instance, _parsed(chosen, text, str(path))) if compared else ()
    write_text(path, text)
    return lost


def _parsed(chosen: Format, text: str, where: str) -> Instance:
    """Return what a module reads in a text; every error becomes a `FormatError` with the path."""
    try:
        instance: Instance = chosen.module.read_text(text, where)
    except FormatError as error:
        if error.path is not None:
            raise
        raise FormatError(error.reason, path=where, line=error.line, field=error.field, **error.facts) from None
    except (GraphError, ClusterError) as error:
        raise FormatError(error.message, path=where, **error.facts) from None
    return instance


def _named(name: object) -> Format:
    for candidate in _formats():
        if candidate.name == name:
            return candidate
    raise OptionError(
        f"there is no file format {name!r}{nearest(str(name), [f.name for f in _formats()])}", option=name
    )


def _sniffed(text: str, path: str) -> Format:
    # A format's marks may stand at the very end: JSON fields have no order.
    for candidate in _formats():
        if candidate.module.sniff(text, path):
            return candidate
    suffix = Path(path).suffix.lower()
    for candidate in _formats():
        if suffix in candidate.suffixes:
            return candidate
    known = ", ".join(f.name for f in _formats())
    raise FormatError(f"is of no known format (known: {known}; choose one with format=)", path=path)
