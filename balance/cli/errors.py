"""Command line: one clear paragraph on standard error instead of a traceback, and the exit codes."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup

from balance.cli.streams import OutputError, usable_streams, writing
from balance.problems.model.errors import BalanceError, ExecutionError, MissingDependencyError, SolverError

# Root of the errors that Typer raises for wrong use; where it lives differs between versions.
WrongUse: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


# An argument's name in advice such as "give bandwidth= and latency=", not a value as in "chunks=2".
_ARGUMENT = re.compile(r"(?<![\w.-])([a-z][a-z_]+)=(?=[\s,.;:)]|$)")


class Code(IntEnum):
    """Exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INFEASIBLE = 3
    NOTHING_FOUND = 4
    INTERRUPTED = 130


class CommandGroup(TyperGroup):
    """The top of the command line: turns every exception into a message and an exit code.

    With ``--traceback`` (before the verb) the exception itself is shown instead.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; leaves through SystemExit unless `standalone_mode` is off."""
        words = list(sys.argv[1:] if args is None else args)
        show = "--traceback" in words[: _first_verb(words)]
        code: int
        with usable_streams():
            try:
                found = super().main(words, prog_name, complete_var, False, windows_expand_args, **extra)
                code = found if isinstance(found, int) else Code.DONE
                with writing():  # what is still in the buffer
                    pass
            except WrongUse as error:
                code = _usage(error, prog_name or "dnn-balance")
            except typer.Abort:
                code = _say("interrupted", Code.INTERRUPTED)
            except SystemExit as end:  # Rich ends the process itself when nobody reads standard output
                code = end.code if isinstance(end.code, int) else Code.FAILED
            except OutputError as error:
                code = _say(f"standard output cannot be written: {error}", Code.FAILED) if str(error) else Code.FAILED
            except Exception as error:  # the last line of defence: people get a sentence, --traceback shows the rest
                if show:
                    raise
                code = _explain(error)
        if standalone_mode:
            sys.exit(int(code))
        return int(code)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; Typer would end without a word on Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None


def _first_verb(words: Sequence[str]) -> int:
    return next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))


def _usage(error: Exception, program: str) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        return Code.USAGE  # the help page has been printed
    context = getattr(error, "ctx", None)
    path = program if context is None else context.command_path
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if not message.rstrip().endswith((".", "?", "!", ")")):
        message += "."
    return _say(f"{message} Try '{path} --help'.", Code.USAGE)


def _explain(error: Exception) -> int:
    if isinstance(error, (SolverError, ExecutionError, MissingDependencyError)):
        return _say(str(error), Code.FAILED)
    if isinstance(error, BalanceError):
        return _say(_as_options(str(error)), Code.USAGE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _say(f"{where}{error.strerror or error}", Code.USAGE)
    if isinstance(error, MemoryError):
        return _say("out of memory; give a smaller instance or a method that needs less", Code.FAILED)
    return _say(
        f"internal error, {type(error).__name__}: {error}. Please report it with the output of "
        f"'dnn-balance --traceback ...' and 'dnn-balance doctor'.",
        Code.FAILED,
    )


def _as_options(message: str) -> str:
    """Return a message of the library with ``bandwidth=`` written as ``--bandwidth``: here there are no arguments."""
    from balance.cli.question import NAMED

    return _ARGUMENT.sub(
        lambda found: f"--{found[1].replace('_', '-')}" if found[1] in NAMED else found[0],
        message,
    )


def _say(message: str, code: int) -> int:
    flat = " ".join(message.split())
    print(textwrap.fill(f"error: {flat}", 120, break_long_words=False, break_on_hyphens=False), file=sys.stderr)
    return code


def context_settings() -> dict[str, Any]:
    """Return what every command shares: ``-h`` as well as ``--help``, defaults shown."""
    return {"help_option_names": ["-h", "--help"]}
