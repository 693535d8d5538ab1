"""Command line: standard streams that are closed, full, not read to the end, or of another encoding."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def usable_streams() -> Iterator[None]:
    """Make standard output and standard error take whatever is written to them, for the time of a command."""
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as stack:
        # Python has None for a stream that the caller has closed.
        if before[0] is None:
            sys.stdout = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        if before[1] is None:
            sys.stderr = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        # A name that the terminal's encoding lacks is shown escaped, as Python itself does on standard error.
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


class OutputError(Exception):
    """Standard output cannot be written; the message says why, and is empty where a reader has seen enough."""


@contextmanager
def writing() -> Iterator[None]:
    """Write to standard output, to the end.

    Raises
    ------
    OutputError
        If it cannot be written. What is left is given up: the interpreter would try again at its end.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # a stream of a test has no descriptor
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, sys.stdout.fileno())
            os.close(sink)
        why = "" if isinstance(error, BrokenPipeError) else error.strerror or str(error)
        raise OutputError(why) from error
