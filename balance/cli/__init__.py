"""Command line: every verb of the library as ``dnn-balance VERB``; nothing imports this room."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments
        Words after the program's name; those of the process by default.

    Returns
    -------
    int
        0 solved or done, 1 failed, 2 wrong use or bad input, 3 infeasible, 4 nothing found, 130 interrupted.
    """
    try:
        # Inside, because importing takes long enough for Ctrl-C to hit it.
        from balance.cli.app import app

        app(args=None if arguments is None else list(arguments), prog_name="dnn-balance")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130
    return 0
