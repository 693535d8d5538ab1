"""Command line: ``doctor``, what is installed, what is in the way, and what to do about it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from balance.cli.console import Output
from balance.cli.errors import Code
from balance.cli.options import JsonOption
from balance.wording import show_bytes

CORE = ("numpy", "scipy", "networkx", "numba", "highspy", "pulp", "ortools", "cvxpy", "typer", "rich")
EXTRAS = {
    "executor": ("torch",),
    "plot": ("matplotlib",),
    "onnx": ("onnx",),
    "bench": ("pytest-benchmark", "pandas", "joblib"),
    "hypergraph": ("mtkahypar",),
    "test": ("pytest", "hypothesis"),
    "docs": ("sphinx", "numpydoc"),
}
LINKED_ROOMS = ("problems", "executor", "bench")


@dataclass(frozen=True)
class Finding:
    """One thing that the doctor looked at.

    Parameters
    ----------
    subject
        What was looked at.
    state
        ``"ok"``, ``"note"`` (worth knowing) or ``"wrong"``.
    text
        What was found.
    remedy
        What to do, when something is wrong.
    """

    subject: str
    state: str
    text: str
    remedy: str = ""


def doctor(as_json: JsonOption = False) -> None:
    """Say what is installed and whether anything is in the way; ends with 1 if something is wrong."""
    findings = examine()
    output = Output(as_json)
    wrong = [finding for finding in findings if finding.state == "wrong"]
    output.data({"healthy": not wrong, "findings": [asdict(finding) for finding in findings]})
    output.table(("", "subject", "found"), [(f.state, f.subject, f.text) for f in findings])
    for finding in wrong:
        output.text(f"{finding.subject}: {finding.remedy}")
    if wrong:
        raise typer.Exit(Code.FAILED)


def examine() -> list[Finding]:
    """Return every finding, in a fixed order."""
    checks: tuple[Callable[[], list[Finding]], ...] = (
        _package,
        _core,
        _extras,
        _rivals,
        _links,
        _machine,
        _torch,
        _kernels,
        _workloads,
    )
    return [finding for check in checks for finding in check()]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package() -> list[Finding]:
    python = Finding("python", "ok", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    version = _version("dnn-balance")
    where = Path(__file__).parent.parent
    if version is None:
        return [python, Finding("dnn-balance", "note", f"not installed, run from {where}")]
    return [python, Finding("dnn-balance", "ok", f"{version} in {where}")]


def _core() -> list[Finding]:
    findings = []
    for name in CORE:
        version = _version(name)
        if version is None:
            findings.append(Finding(name, "wrong", "missing", f"pip install {name} (or install dnn-balance again)"))
        else:
            findings.append(Finding(name, "ok", version))
    return findings


def _extras() -> list[Finding]:
    findings = []
    for extra, names in EXTRAS.items():
        missing = [name for name in names if _version(name) is None]
        if missing:
            text = f"{', '.join(missing)} not installed; pip install 'dnn-balance[{extra}]' brings it"
            findings.append(Finding(f"extra {extra}", "note", text))
        else:
            findings.append(Finding(f"extra {extra}", "ok", ", ".join(f"{name} {_version(name)}" for name in names)))
    return findings


def _rivals() -> list[Finding]:
    owners = sorted({*importlib.metadata.packages_distributions().get("balance", ())} - {"dnn-balance"})
    if not owners:
        return [Finding("import name", "ok", "no other distribution owns the import name balance")]
    return [
        Finding(
            "import name",
            "wrong",
            f"the distribution {', '.join(owners)} also installs a package named balance",
            f"the two overwrite each other's files; use separate environments, or pip uninstall {' '.join(owners)} and "
            f"install dnn-balance again",
        )
    ]


def _links() -> list[Finding]:
    """Look at the rooms that are links in a checkout and real folders in a wheel."""
    home = Path(__file__).parent.parent
    broken = [room for room in LINKED_ROOMS if not (home / room / "__init__.py").is_file()]
    if broken:
        return [
            Finding(
                "rooms",
                "wrong",
                f"balance/{', balance/'.join(broken)} cannot be read",
                "the checkout lost its symbolic links; on Windows set core.symlinks=true and clone again",
            )
        ]
    linked = sum((home / room).is_symlink() for room in LINKED_ROOMS)
    return [Finding("rooms", "ok", f"problems, executor and bench are there ({'links' if linked else 'folders'})")]


def _machine() -> list[Finding]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{usable} usable of {os.cpu_count()} cores"
    with contextlib.suppress(AttributeError, OSError, ValueError):  # not known on every system
        text += f", {show_bytes(float(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')))} memory"
    return [Finding("machine", "ok", text)]


def _torch() -> list[Finding]:
    if importlib.util.find_spec("torch") is None:
        return []
    try:
        import torch
        from torch import distributed
    except Exception as error:  # a broken torch fails in many ways; the finding is that it does
        return [Finding("torch", "wrong", f"cannot be imported: {error}", "install torch again")]
    backends = [name for name in ("gloo", "nccl") if getattr(distributed, f"is_{name}_available", bool)()]
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [
        Finding("torch", "ok", f"{torch.__version__}, backends: {', '.join(backends) or 'none'}"),
        Finding("cuda", "ok" if devices else "note", ", ".join(devices) or "no CUDA device"),
    ]


def _kernels() -> list[Finding]:
    """Look at where compiled kernels are kept: without a place to write, every process compiles them again."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(given) if given else Path(__file__).parent.parent
    if _writable(folder):
        return [Finding("kernel cache", "ok", f"{folder} can be written")]
    if not given:
        # Numba then falls back to the user's own cache folder.
        fallback = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        if _writable(fallback):
            return [Finding("kernel cache", "ok", f"{fallback} can be written ({folder} cannot)")]
    return [
        Finding(
            "kernel cache",
            "wrong",
            f"{folder} cannot be written, so kernels are compiled in every process (tens of seconds)",
            "set NUMBA_CACHE_DIR to a folder that can be written",
        )
    ]


def _writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _workloads() -> list[Finding]:
    given = os.environ.get("DNN_BALANCE_WORKLOADS")
    if given is None:
        return [Finding("workloads", "note", "DNN_BALANCE_WORKLOADS is not set; public workloads are skipped")]
    if Path(given).is_dir():
        return [Finding("workloads", "ok", given)]
    return [
        Finding(
            "workloads",
            "wrong",
            f"DNN_BALANCE_WORKLOADS={given} is not a folder",
            "set it to the folder with the workloads",
        )
    ]
