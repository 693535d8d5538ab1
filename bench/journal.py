"""Bench room: an append-only file of rows, one JSON object a line, that survives a kill at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from balance.problems.model.errors import FormatError, OptionError

SCHEMA = "dnn-balance/bench-row"
VERSION = 1


class Journal:
    """Rows in a file; used as a context manager by the one writer.

    A row is written with a single append and synced before the next one starts. What a kill leaves behind is at most
    one torn last line: opening for writing completes it if it is a whole row that only lacks its line end, and cuts it
    off otherwise, so that its cell runs again.

    Parameters
    ----------
    path
        The file; made when the first writer opens it. Its folder must exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.repaired = 0
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Journal:
        try:
            file = self.path.open("a+b")
        except OSError as error:
            raise OptionError(f"{self.path} cannot be written: {error.strerror or error}") from None
        try:
            _lock(file, self.path)
            self.repaired = _repair(file, self.path)
        except BaseException:
            file.close()
            raise
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row and wait until it is on the disk.

        Raises
        ------
        RuntimeError
            If the journal is not open for writing.
        ValueError
            If the row holds nan or infinity, which JSON has no word for.
        """
        if self._file is None:
            raise RuntimeError("the journal is not open for writing; use it as a context manager")
        line = json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Read the rows, oldest first; a torn last line is passed over.

        Raises
        ------
        FormatError
            If a line that is not the last one is broken (such a file was edited, not torn), or is no row of a campaign.
        """
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise FormatError(f"cannot be read: {error.strerror or error}", path=str(self.path)) from None
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row = _row(line)
            if row is None:
                if number == len(lines):
                    return
                raise FormatError("is not a row of a campaign", path=str(self.path), line=number)
            yield check_row(row, str(self.path), number)


def check_row(row: Mapping[str, Any], path: str | None = None, number: int | None = None) -> dict[str, Any]:
    """Return a row read from a journal, if it is one that this release reads.

    Parameters
    ----------
    row
        What was read.
    path, number
        Where it stands, for the message.

    Raises
    ------
    FormatError
        If it is no row of a campaign, or was written by a release with rows of another form.
    """
    if row.get("schema") != SCHEMA:
        raise FormatError("is not a row of a campaign", path=path, line=number, field="schema")
    if row.get("schema_version") != VERSION:
        raise FormatError(
            f"is {row.get('schema_version')!r}; this release reads version {VERSION}: give another folder",
            path=path,
            line=number,
            field="schema_version",
        )
    for field_name in ("key", "version", "kind", "name", "status"):
        if not isinstance(row.get(field_name), str):
            raise FormatError("expected a string", path=path, line=number, field=field_name)
    failed = row["status"] in ("failed", "killed")
    needed = {"provenance": True, "error": failed, "figure": row["kind"] == "measure" and not failed}
    for field_name, must in needed.items():
        value = row.get(field_name)
        if not isinstance(value, Mapping) and (must or value is not None):
            raise FormatError("expected an object", path=path, line=number, field=field_name)
    figure = row.get("figure") or {}
    for field_name in ("value", "unit", "limit", "met", "samples", "parameters"):
        if needed["figure"] and field_name not in figure:
            raise FormatError("is missing", path=path, line=number, field=f"figure.{field_name}")
    return dict(row)


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _repair(file: IO[bytes], path: Path) -> int:
    """Complete or cut the last line; return the number of bytes cut off.

    Raises
    ------
    FormatError
        If the last line is not the beginning of a row: nothing is cut off a file that is something else.
    """
    file.seek(0)
    content = file.read()
    if not content or content.endswith(b"\n"):
        return 0
    start = content.rfind(b"\n") + 1
    last = content[start:].strip(b"\0")  # a file system may leave zeros where a machine went down
    if last[:2] != b'{"'[: len(last)]:
        raise FormatError("does not end in a row of a campaign", path=str(path), line=content.count(b"\n") + 1)
    if _row(content[start:]) is not None:
        file.write(b"\n")
        file.flush()
        return 0
    file.truncate(start)
    return len(content) - start


def _lock(file: IO[bytes], path: Path) -> None:
    """Let one writer in. Windows has no fcntl; there the user must see to it."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OptionError(f"{path} is being written by another campaign; wait for it or give another folder") from None
