"""Command line as ``python -m balance``."""

from __future__ import annotations

import sys

from balance.cli import main

# Guarded: the executor's ranks import the main module again.
if __name__ == "__main__":
    sys.exit(main())
