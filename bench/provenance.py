"""Bench room: where a row comes from: versions, machine, commit, code."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import balance

# Folders of the package that decide neither an answer nor its time.
_PRESENTATION = frozenset({"cli", "plot", "export", "__pycache__"})

# What decides an answer or its time, as far as it is installed.
DISTRIBUTIONS = (
    "dnn-balance",
    "numpy",
    "scipy",
    "networkx",
    "numba",
    "highspy",
    "pulp",
    "ortools",
    "cvxpy",
    "torch",
    "matplotlib",
)


def versions() -> dict[str, str]:
    """Return the versions of Python and of every installed distribution that matters."""
    found = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Return what the machine is and how busy it was."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts: dict[str, Any] = {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": cores,
        "memory_bytes": _memory(),
    }
    if hasattr(os, "getloadavg"):
        facts["load"] = round(os.getloadavg()[0], 2)
    return facts


def commit() -> str | None:
    """Return the commit that the package is run from, with ``+changes`` if files differ; None outside a checkout."""
    # The room's folder is reached through a symbolic link in a checkout; in a wheel there is no .git above it.
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    head = _git(root, "rev-parse", "HEAD")
    if not head:
        return None
    return head + ("+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")


def code() -> str:
    """Return a fingerprint of the package's Python files, 16 hexadecimal digits; command line and pictures left out.

    It tells code apart that has one version and one commit: a checkout that is being worked on.
    """
    home = Path(balance.__path__[0])
    digest = hashlib.sha256()
    for folder, inner, files in os.walk(home, followlinks=True):
        inner[:] = sorted(name for name in inner if name not in _PRESENTATION)
        for name in sorted(file for file in files if file.endswith(".py")):
            path = Path(folder, name)
            content = path.read_bytes()
            digest.update(f"{path.relative_to(home).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


def provenance() -> dict[str, Any]:
    """Return versions, machine, commit and fingerprint of the code; what every row carries."""
    return {"versions": versions(), "machine": machine(), "commit": commit(), "code": code()}


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
