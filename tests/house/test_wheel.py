"""What is shipped: the wheel holds the package and nothing else, also when it is built from the sdist."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
INFO = f"dnn_balance-{VERSION}.dist-info"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Archives:
    """The wheel of the checkout, the sdist, and the wheel of the sdist."""

    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command and return what it printed; its output is the message if it fails."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{words} failed:\n{done.stdout}{done.stderr}"
    return done.stdout


def built(kind: str, source: Path, target: Path) -> Path:
    """Build an archive with the installed backend, without network."""
    run(sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", target, source, cwd=target.parent)
    (archive,) = target.iterdir()
    return archive


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    """Build all three once."""
    base = tmp_path_factory.mktemp("archives")
    wheel, sdist = built("wheel", ROOT, base / "wheel"), built("sdist", ROOT, base / "sdist")
    with tarfile.open(sdist) as tar:
        tar.extractall(base / "unpacked", filter="data")
    (source,) = (base / "unpacked").iterdir()
    return Archives(wheel, sdist, built("wheel", source, base / "again"))


def contents(wheel: Path) -> dict[str, bytes]:
    """Return name and content of every file but the list of hashes, which follows from the rest."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)), "a file is packed twice"
        return {name: archive.read(name) for name in sorted(names) if not name.endswith("/RECORD")}


def test_wheel_holds_only_the_package(archives: Archives) -> None:
    """Beside ``balance/`` there is nothing but the wheel's own metadata."""
    tops = {name.split("/")[0] for name in contents(archives.wheel)}
    assert sorted(tops) == ["balance", INFO]


def test_wheel_holds_every_source_file(archives: Archives) -> None:
    """Every file below ``balance/``, links followed, is in the wheel with its content, and no other is."""
    expected = {}
    for folder, folders, files in os.walk(ROOT / "balance", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for file in files:
            path = Path(folder, file)
            expected[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    packed = {name: data for name, data in contents(archives.wheel).items() if name.startswith("balance/")}
    assert sorted(packed) == sorted(expected)
    assert packed == expected
    for name in (
        "problems/model/errors.py",
        "executor/__init__.py",
        "bench/__init__.py",
        "cli/__init__.py",
        "py.typed",
    ):
        assert f"balance/{name}" in packed


def test_wheel_of_the_sdist_is_the_same(archives: Archives) -> None:
    """Who builds from the sdist gets the same files as who builds from the checkout."""
    ours, theirs = contents(archives.wheel), contents(archives.wheel_of_sdist)
    assert sorted(ours) == sorted(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_sdist_holds_each_file_once(archives: Archives) -> None:
    """The rooms lie under ``balance/`` as real files; the sdist has no link and no second copy."""
    with tarfile.open(archives.sdist) as tar:
        members = tar.getmembers()
    assert [member.name for member in members if member.issym() or member.islnk()] == []
    inner = {member.name.split("/", 1)[1] for member in members}
    assert {"balance/problems/model/errors.py", "tests/conftest.py", "LICENSE", "Makefile"} <= inner
    assert [name for name in sorted(inner) if name.split("/")[0] in ("problems", "executor", "bench")] == []


def test_installed_wheel_runs(archives: Archives, tmp_path: Path) -> None:
    """Installed alone, the package is imported from the wheel, reads its data and answers on the command line."""
    home, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target", home)
    run(sys.executable, *install, archives.wheel, cwd=elsewhere, PIP_CONFIG_FILE=os.devnull)
    where = run(
        sys.executable, "-c", "import balance.problems.model.errors as e; print(e.__file__)", cwd=elsewhere,
        PYTHONPATH=str(home),
    )  # fmt: skip
    assert Path(where.strip()) == home / "balance" / "problems" / "model" / "errors.py"
    said = run(sys.executable, "-m", "balance", "problems", "--json", cwd=elsewhere, PYTHONPATH=str(home))
    assert '"chain"' in said
    with zipfile.ZipFile(archives.wheel) as archive:
        points = archive.read(f"{INFO}/entry_points.txt").decode()
    assert "dnn-balance = balance.cli:main" in points
