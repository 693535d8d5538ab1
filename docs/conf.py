"""Sphinx configuration: ``make docs`` builds with warnings as errors and runs the examples."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "dnn-balance"
author = "The dnn-balance authors"
copyright = author
release = version = importlib.metadata.version("dnn-balance")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "catalogue",
]
exclude_patterns = ["_build", "extensions"]
source_suffix = {".md": "markdown"}
root_doc = "index"

# Docstrings put code between single backticks; what names an object becomes a link.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Shown by their names; spelled out, the types of arrays fill the page.
autodoc_type_aliases = {name: name for name in ("ArrayLike", "FloatArray", "IntArray", "TimeTable")}
autodoc_default_options = {"members": True}
numpydoc_show_class_members = False
autosummary_generate = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

doctest_global_setup = "import numpy as np"
doctest_test_doctest_blocks = ""

html_theme = "furo"
html_title = f"dnn-balance {release}"
html_copy_source = False


def _plain_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write the aliases above by name also inside unions, where autodoc shows its own wrapper of them."""
    wrapper = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
    return signature and wrapper.sub(r"\1", signature), returned and wrapper.sub(r"\1", returned)


def setup(app: Sphinx) -> None:
    """Connect what this file adds."""
    app.connect("autodoc-process-signature", _plain_signature)
