"""Command line: a user's model and data, named as ``module:function``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from balance.problems.model.errors import BalanceError, MissingDependencyError, OptionError
from balance.problems.model.fields import nearest

_PARTS = ("model", "inputs", "targets", "loss_fn", "optimizer")


@dataclass(frozen=True)
class Workload:
    """What a user's function returns.

    Parameters
    ----------
    model
        An `nn.Sequential` or a list of modules.
    inputs
        A batch of samples, along the first dimension.
    targets
        Their targets, or None.
    loss_fn
        Mean loss ``loss_fn(output, target)``, or None.
    optimizer
        Builds an optimizer from a list of parameters, or None.
    """

    model: Any
    inputs: Any
    targets: Any = None
    loss_fn: Any = None
    optimizer: Any = None


def load_workload(reference: str) -> Workload:
    """Import a module, call its function without arguments and return what it describes.

    The function returns a mapping with the keys ``model``, ``inputs`` and optionally ``targets``, ``loss_fn`` and
    ``optimizer``, or a tuple of them in this order. The current folder is searched first, as ``python -m`` does.

    Raises
    ------
    OptionError
        If the reference is malformed, there is no such function, or it returns something else.
    MissingDependencyError
        If the module needs a package that is not installed.
    """
    name, colon, attribute = reference.partition(":")
    if not colon or not name or not attribute:
        raise OptionError(f"a model is named module:function, got {reference!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise OptionError(f"there is no module {name!r} in {os.getcwd()} or among the installed packages") from None
        raise MissingDependencyError(f"module {name!r} needs {error.name!r}, which is not installed") from None
    except (BalanceError, MemoryError):
        raise
    except Exception as error:  # as below: a fault in the user's file
        raise OptionError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, attribute, None)
    if function is None:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise OptionError(f"module {name!r} has no {attribute!r}{nearest(attribute, known)}")
    if not callable(function):
        raise OptionError(f"{reference} is not a function")
    needed = _needed(function)
    if needed:
        raise OptionError(f"{reference} must work without arguments; it needs {', '.join(needed)}")
    try:
        found = function()
    except (BalanceError, MemoryError):
        raise
    except Exception as error:  # the user's code may raise anything, and it is not ours to report
        raise OptionError(f"{reference} raised {type(error).__name__}: {error}") from error
    return _workload(found, reference)


def _needed(function: Any) -> list[str]:
    """Return the arguments that a function cannot do without."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some native callables have no signature
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in optional]


def _workload(found: Any, reference: str) -> Workload:
    if isinstance(found, Mapping):
        unknown = [key for key in found if key not in _PARTS]
        if unknown:
            raise OptionError(f"{reference} returns the unknown key {unknown[0]!r}{nearest(str(unknown[0]), _PARTS)}")
        missing = [key for key in _PARTS[:2] if key not in found]
        if missing:
            raise OptionError(f"{reference} returns no {missing[0]!r}; it must return {', '.join(_PARTS)}")
        return Workload(**found)
    if isinstance(found, tuple) and 2 <= len(found) <= len(_PARTS):
        return Workload(*found)
    raise OptionError(
        f"{reference} returned {type(found).__name__}; expected a mapping with model and inputs, or a tuple "
        f"({', '.join(_PARTS)}) of which the last three may be left out"
    )
