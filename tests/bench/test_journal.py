"""Tests of the campaign's journal: nothing lost, nothing doubled, whatever happened before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.bench.journal import SCHEMA, VERSION, Journal
from balance.problems.model.errors import FormatError, OptionError


def _line(key: object) -> dict[str, Any]:
    """Return a row with a key."""
    return {
        **{"schema": SCHEMA, "schema_version": VERSION, "key": str(key), "version": "1", "kind": "solve"},
        **{"name": "Größe | x", "status": "optimal", "provenance": {}},
    }


def _keys(journal: Journal) -> list[str]:
    """Return the keys of the rows, in order."""
    return [row["key"] for row in journal.rows()]


def _write(path: Path, count: int) -> None:
    with Journal(path) as journal:
        for i in range(count):
            journal.append(_line(i))


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    """What was appended is read back, oldest first."""
    path = tmp_path / "rows.jsonl"
    _write(path, 3)
    assert _keys(Journal(path)) == ["0", "1", "2"]


def test_a_missing_file_has_no_rows(tmp_path: Path) -> None:
    """Reading before anything was written is not an error."""
    assert list(Journal(tmp_path / "none.jsonl").rows()) == []


@given(cut=st.integers(0, 700))
def test_a_kill_at_any_byte_keeps_every_whole_row(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """After a cut at any byte the whole rows stay, the next writer appends cleanly, and no line is broken."""
    path = tmp_path_factory.mktemp("journal") / "rows.jsonl"
    _write(path, 4)
    content = path.read_bytes()
    cut = min(cut, len(content))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n") + (cut < len(content) and content[cut : cut + 1] == b"\n")
    kept = [str(i) for i in range(whole)]
    assert _keys(Journal(path)) == kept
    with Journal(path) as journal:
        assert _keys(journal) == kept
        journal.append(_line("next"))
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["key"] for line in lines] == [*kept, "next"]


def test_the_repair_says_how_much_it_cut(tmp_path: Path) -> None:
    """The number of torn bytes is reported."""
    path = tmp_path / "rows.jsonl"
    _write(path, 1)
    with path.open("ab") as file:
        file.write(b'{"key": 1, "te')
    with Journal(path) as journal:
        assert journal.repaired == len(b'{"key": 1, "te')


def test_nothing_is_cut_off_another_file(tmp_path: Path) -> None:
    """A file whose last line no row begins with stays as it is; zeros of a lost write are cut."""
    path = tmp_path / "rows.jsonl"
    path.write_text("my notes\nof last week")
    with pytest.raises(FormatError, match=r"line 2: does not end in a row"), Journal(path):
        pass
    assert path.read_text() == "my notes\nof last week"
    path.unlink()
    _write(path, 1)
    path.write_bytes(path.read_bytes() + b"\0\0\0")
    with Journal(path) as journal:
        assert journal.repaired == 3
        assert _keys(journal) == ["0"]


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """A line that a kill cannot have torn is reported with its number."""
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(_line(0))}\nnot a row\n{json.dumps(_line(1))}\n", encoding="utf-8")
    with pytest.raises(FormatError, match=r"rows\.jsonl, line 2"):
        list(Journal(path).rows())


def test_a_row_of_something_else_is_an_error(tmp_path: Path) -> None:
    """A line that is JSON but no row is reported with its number, blank lines counted, and its field."""
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{json.dumps(_line(0))}\n\n{{"key": 1}}\n', encoding="utf-8")
    with pytest.raises(FormatError, match=r"rows\.jsonl, line 3, schema: is not a row of a campaign"):
        list(Journal(path).rows())


def test_two_writers_are_kept_apart(tmp_path: Path) -> None:
    """A second writer of the same file is refused while the first one is there."""
    path = tmp_path / "rows.jsonl"
    with Journal(path), pytest.raises(OptionError, match="another campaign"), Journal(path):
        pass
    with Journal(path) as journal:
        journal.append(_line(0))


def test_infinity_is_refused(tmp_path: Path) -> None:
    """A row that other JSON readers could not read is not written."""
    path = tmp_path / "rows.jsonl"
    with Journal(path) as journal, pytest.raises(ValueError, match="JSON"):
        journal.append({"bound": float("-inf")})
    assert list(Journal(path).rows()) == []


def test_appending_needs_an_open_journal(tmp_path: Path) -> None:
    """Only the writer that holds the lock appends."""
    with pytest.raises(RuntimeError, match="not open"):
        Journal(tmp_path / "rows.jsonl").append({})


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    """The message names the path that cannot be written."""
    with pytest.raises(OptionError, match=r"nowhere.*cannot be written"), Journal(tmp_path / "nowhere" / "rows.jsonl"):
        pass
