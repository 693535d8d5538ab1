"""Model room: reading and writing files whole, so that a broken write never replaces a good file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from balance.problems.model.errors import FormatError

Built = TypeVar("Built")

LARGEST_FILE = 2**30
"""Bytes; larger files are refused instead of filling the memory."""


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` as UTF-8 with line feeds, through `write_bytes`.

    Raises
    ------
    OSError
        As `write_bytes`.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content` to `path` through a temporary file in the same folder.

    Raises
    ------
    OSError
        If the folder does not exist or cannot be written; an older file at `path` is then untouched.
    """
    target = Path(path)
    try:
        _replace(target, content)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(target)) from None  # the temporary file's name tells nobody much


def _replace(target: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; give the result the permissions an ordinary write would.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: str | Path, data: Any) -> None:
    """Write `data` as JSON with a final newline, through `write_text`."""
    write_text(path, json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n")


def read_text(path: str | Path) -> str:
    """Return a file's text, without a byte-order mark and with a line feed as line end.

    Raises
    ------
    FormatError
        If it cannot be opened, is larger than `LARGEST_FILE` or is not UTF-8 text.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size  # 0 for pipes and devices, which are read up to the limit
            content = file.read(LARGEST_FILE + 1) if size == 0 else b"" if size > LARGEST_FILE else file.read()
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror or error}", path=str(path)) from None
    except ValueError as error:  # a null byte in the path
        raise FormatError(f"cannot be read: {error}", path=repr(path)) from None
    if max(size, len(content)) > LARGEST_FILE:
        raise FormatError(f"is larger than {LARGEST_FILE} bytes", path=str(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"is not UTF-8 text (byte {error.start})", path=str(path)) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_json(text: str, path: str | None = None) -> Any:
    """Parse JSON text.

    Raises
    ------
    FormatError
        With the line of the first error; also for NaN and Infinity, which JSON does not have, and for text
        nested too deeply.
    """

    def refuse(constant: str) -> NoReturn:
        raise FormatError(f"holds {constant}, which is not a JSON number", path=path)

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise FormatError(f"is not JSON: {error.msg} (column {error.colno})", path=path, line=error.lineno) from None
    except FormatError:
        raise
    except RecursionError:
        raise FormatError("is JSON nested too deeply", path=path) from None
    except ValueError as error:  # an integer of thousands of digits
        raise FormatError(f"is not JSON that can be read: {error}", path=path) from None


def read_json(path: str | Path, build: Callable[[Any], Built]) -> Built:
    """Read a JSON file and hand its content to `build`; errors are given the file's name.

    Raises
    ------
    FormatError
        If the file is not JSON or `build` refuses its content.
    """
    data = parse_json(read_text(path), str(path))
    try:
        return build(data)
    except FormatError as error:
        raise FormatError(error.reason, path=str(path), line=error.line, field=error.field, **error.facts) from None
