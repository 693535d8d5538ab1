"""Bench room: the specs are found, not listed: every module under ``specs/`` brings its own."""

from __future__ import annotations

import importlib
import pkgutil

from balance.bench import specs as _home
from balance.bench.spec import Spec
from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest


def list_specs(prefix: str = "") -> list[Spec]:
    """Return every spec whose name starts with `prefix`, in order of name.

    A module under ``bench/specs/`` names its specs ``SPECS`` (a tuple of `Spec`).

    Raises
    ------
    OptionError
        If a module has no ``SPECS``, or two specs share a name.
    """
    found: dict[str, Spec] = {}
    for info in sorted(pkgutil.iter_modules(_home.__path__), key=lambda row: row.name):
        module = importlib.import_module(f"{_home.__name__}.{info.name}")
        specs = getattr(module, "SPECS", None)
        if not isinstance(specs, tuple) or not all(isinstance(spec, Spec) for spec in specs):
            raise OptionError(f"bench/specs/{info.name}.py must define SPECS, a tuple of Spec objects")
        for spec in specs:
            if spec.name in found:
                raise OptionError(f"two specs are named {spec.name!r}; the second is in bench/specs/{info.name}.py")
            found[spec.name] = spec
    return [found[name] for name in sorted(found) if name.startswith(prefix)]


def find_spec(name: str) -> Spec:
    """Return the spec of a name.

    Raises
    ------
    OptionError
        If there is none; the message names the nearest.
    """
    known = {spec.name: spec for spec in list_specs()}
    if name not in known:
        raise OptionError(f"there is no spec {name!r}{nearest(name, known)}; dnn-balance bench list shows all")
    return known[name]
