"""Tests of convert and generate, and of the lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from balance.problems.formats import read
from balance.problems.model.graph import CostGraph

Command = Any  # the fixture of conftest.py


def test_convert_there_and_back(command: Command, graph: Path) -> None:
    """A graph survives another format as far as that format can hold it."""
    done = command("convert", graph, "graph.txt", "--to", "pipedream", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["operators"] == 8
    assert command("convert", "graph.txt", "back.json").exit_code == 0
    assert read("back.json").graph.n_operators == 8


def test_convert_keeps_a_good_file(command: Command, tmp_path: Path) -> None:
    """What cannot be written does not harm the file that was there."""
    CostGraph(forward={"a": [1.0], "b": [2.0]}).save("two.json")
    target = tmp_path / "out.txt"
    target.write_text("precious", encoding="utf-8")
    done = command("convert", "two.json", target, "--to", "pipedream")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert target.read_text(encoding="utf-8") == "precious"


def test_broken_files_name_the_place(command: Command) -> None:
    """A file that is not what it seems is an error with its path."""
    Path("bad.json").write_text('{"schema": "dnn-balance/graph", "version": 1, "forward": [1,', encoding="utf-8")
    done = command("convert", "bad.json", "out.json")
    assert done.exit_code == 2
    assert "bad.json" in done.stderr


def test_a_missing_folder_is_an_error(command: Command, graph: Path) -> None:
    """Writing where there is no folder is explained, not a traceback."""
    done = command("convert", graph, "nowhere/out.json")
    assert done.exit_code == 2
    assert "nowhere" in done.stderr


@pytest.mark.parametrize("verb", ["problems", "solvers", "formats"])
def test_lists_in_both_forms(command: Command, verb: str) -> None:
    """Each list is a table for people and an array for programs."""
    found = json.loads(command(verb, "--json").stdout)
    assert found
    assert all(row["name"] in command(verb).stdout for row in found)


def test_one_of_a_list(command: Command) -> None:
    """Problems NAME shows the statement, formats NAME the description, an unknown name the nearest."""
    assert "**Variables.**" in command("problems", "chain").stdout
    assert "NeurIPS" in command("formats", "piper").stdout
    assert {row["problem"] for row in json.loads(command("solvers", "chain", "--json").stdout)} == {"chain"}
    done = command("problems", "chan")
    assert (done.exit_code, "'chain'" in done.stderr) == (2, True)


@pytest.mark.parametrize("verb", ["convert", "generate"])
@pytest.mark.parametrize(
    ("target", "says"),
    [
        (["x.foo"], [".foo", ".json", ".txt", "--to"]),
        (["x"], ["no ending", ".json", "--to"]),
        (["x.foo", "--to", "natve"], ["'native'"]),
    ],
)
def test_an_unknown_ending_is_an_error(
    command: Command, graph: Path, verb: str, target: list[str], says: list[str]
) -> None:
    """Nothing is written in a format that nobody asked for; --to says which."""
    words = ["convert", graph] if verb == "convert" else ["generate", "random_chain", "--set", "operators=5", "-o"]
    done = command(*words, *target)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    assert all(part in done.stderr for part in says), done.stderr
    assert not Path(target[0]).exists()
    if len(target) == 1:
        assert command(*words, *target, "--to", "native").exit_code == 0
        assert read(target[0]).graph.n_operators in (5, 8)


def test_convert_says_what_is_lost(command: Command, graph: Path) -> None:
    """What the target format does not keep is told on standard error and in the document."""
    done = command("convert", graph, "graph.txt", "--json")
    assert done.exit_code == 0, done.stderr
    lost = json.loads(done.stdout)["lost"]
    assert lost
    assert all(f"lost: {sentence}" in done.stderr.replace("\n", " ") for sentence in lost)
