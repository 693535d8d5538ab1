"""Whole files: what is written appears at once or not at all; what is read is text or a FormatError."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model import files
from balance.problems.model.errors import FormatError
from balance.problems.model.fields import Fields, integer, nearest, number, numbers, plain


def test_a_broken_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If anything fails before the new file is complete, the old one stands and nothing else is left."""
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    for step in ("fsync", "replace", "chmod"):
        with monkeypatch.context() as patch:

            def fail(*_: object) -> None:
                raise OSError("disk full")

            patch.setattr(os, step, fail)
            with pytest.raises(OSError, match="disk full"):
                files.write_text(path, "new")
    with pytest.raises(UnicodeEncodeError):
        files.write_text(path, "\ud800")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_written_file_has_ordinary_permissions(tmp_path: Path) -> None:
    """The file is as readable as one that open() makes, not private like a temporary one."""
    ordinary, ours = tmp_path / "ordinary", tmp_path / "ours"
    ordinary.write_text("x")
    files.write_text(ours, "x")
    assert stat.S_IMODE(ours.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


def test_a_folder_that_does_not_exist_is_an_os_error(tmp_path: Path) -> None:
    """Writing into nowhere is the operating system's error."""
    with pytest.raises(FileNotFoundError):
        files.write_text(tmp_path / "no" / "a.txt", "x")


@given(text=st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\ufeff")))
def test_text_round_trips(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Any text without carriage returns comes back as it was."""
    path = tmp_path_factory.getbasetemp() / "text"
    files.write_text(path, text)
    assert files.read_text(path) == text


def test_line_ends_and_byte_order_marks(tmp_path: Path) -> None:
    """Windows and old Macintosh line ends and a byte-order mark are read away."""
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert files.read_text(tmp_path / "a") == "a\nb\nc\n"


def test_json_that_cannot_be_read(tmp_path: Path) -> None:
    """Broken, deep and overlong JSON gives a FormatError with path and, where known, line."""
    cases = {
        "{": 1,
        '{"a":\n\n]': 3,
        "[" * 100_000: None,
        "9" * 5000: None,
        "[NaN]": None,
        "[1, -Infinity]": None,
        "": 1,
    }
    for text, line in cases.items():
        with pytest.raises(FormatError) as caught:
            files.parse_json(text, "x.json")
        assert caught.value.path == "x.json"
        assert caught.value.line == line


def test_read_json_adds_the_path(tmp_path: Path) -> None:
    """An error of the builder is given the file's name and keeps its field and facts."""
    files.write_json(tmp_path / "a.json", {"n": -1})

    def build(data: object) -> int:
        value: int = Fields(data).integer("n")
        return value

    with pytest.raises(FormatError, match=r"a\.json, n: must be at least 0, got -1"):
        files.read_json(tmp_path / "a.json", build)


def test_fields_are_checked_one_by_one() -> None:
    """Every accessor names the field; null counts as absent; what nobody asked for is refused."""
    fields = Fields({"a": 1, "b": None, "c": "x", "d": [1], "e": {"f": 1.5}, "g": 1, "typo": 0}, "top")
    assert (fields.integer("a"), fields.integer("b", 7), fields.text("c"), fields.items("d")) == (1, 7, "x", [1])
    assert fields.inner("e").number("f") == 1.5
    assert fields.flag("g") is True
    assert fields.choice("c", ["x", "y"]) == "x"
    with pytest.raises(FormatError, match=r"top\.b: is missing"):
        fields.integer("b")
    with pytest.raises(FormatError, match=r"top\.c: expected a number, got str 'x'"):
        fields.number("c")
    with pytest.raises(FormatError, match=r"top\.c: 'x' is not one of yes"):
        fields.choice("c", ["yes"])
    with pytest.raises(FormatError, match=r"top\.a: expected a string"):
        fields.text("a")
    with pytest.raises(FormatError, match=r"top\.c: expected true or false"):
        fields.flag("c")
    with pytest.raises(FormatError, match=r"top\.a: expected an object"):
        fields.inner("a")
    with pytest.raises(FormatError, match=r"top\.typo: is not a known field"):
        fields.done()


@pytest.mark.parametrize("value", [True, "1", None, [], float("nan"), float("inf"), 10**400, -1])
def test_bad_numbers_are_refused(value: object) -> None:
    """A number is a finite int or float that is not negative."""
    with pytest.raises(FormatError, match=r"^f: "):
        number(value, "f")


def test_integers_keep_their_last_digit() -> None:
    """Integers beyond 2**53 are not rounded through a float; fractions and huge ones are refused."""
    assert integer(2**53 + 1, "f") == 2**53 + 1
    assert integer(3.0, "f") == 3
    assert isinstance(integer(3.0, "f"), int)
    for bad in (0.5, 2**70, -1):
        with pytest.raises(FormatError):
            integer(bad, "f")


def test_columns_of_numbers() -> None:
    """A list or one number for all; null where it has a meaning; lengths are checked."""
    assert numbers([1, 2], "f").tolist() == [1, 2]
    assert numbers(3, "f", length=2).tolist() == [3, 3]
    assert numbers([None, 1], "f", null=9.0).tolist() == [9, 1]
    assert numbers(None, "f", length=2, null=9.0).tolist() == [9, 9]
    with pytest.raises(FormatError, match="has 1 entries, expected 2"):
        numbers([1], "f", length=2)
    with pytest.raises(FormatError, match=r"f\[1\]"):
        numbers([1, None], "f")


def test_plain_values_can_be_written_again() -> None:
    """What is kept as it is must be finite and not too deep."""
    value = {"a": [1, 2.5, None, True, "x", {}]}
    assert plain(value, "f") is value
    with pytest.raises(FormatError, match=r"f\.a\[1\]: must be finite"):
        plain({"a": [0, float("inf")]}, "f")
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(FormatError, match="nested too deeply"):
        plain(deep, "f")


def test_messages_stay_short_whatever_the_value() -> None:
    """A hostile value is shown by its first characters only, however large or deep it is."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("x" * 10**6, deep, list(range(10**6))):
        with pytest.raises(FormatError) as caught:
            number(value, "f")
        assert len(str(caught.value)) < 100
    while deep:  # taken apart by hand: letting go of it at once would recurse
        deep = deep[0]  # type: ignore[assignment]


def test_nearest_names_one_or_lists_all() -> None:
    """A near miss gets a suggestion, anything else the list."""
    assert nearest("forwards", ["forward", "backward"]) == " (did you mean 'forward'?)"
    assert nearest("zzz", ["a", "b"]) == " (known: a, b)"
    assert nearest("zzz", []) == ""
