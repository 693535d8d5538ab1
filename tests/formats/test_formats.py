"""The reading and writing of files whatever their format: discovery, sniffing, and files that are no files."""

from __future__ import annotations

import json
import os
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from balance.problems import formats
from balance.problems.formats import list_formats, read, write
from balance.problems.instance import Instance
from balance.problems.model.errors import FormatError, OptionError, ProblemError
from balance.problems.model.graph import CostGraph


def test_every_module_is_a_format() -> None:
    """Each public module of the folder is listed once, with the constants and functions that make a format."""
    modules = [entry.name for entry in pkgutil.iter_modules(formats.__path__) if not entry.name.startswith("_")]
    assert sorted(format.name.replace("-", "_") for format in list_formats()) == sorted(modules)
    for format in list_formats():
        assert callable(format.module.sniff)
        assert callable(format.module.read_text)
        assert format.suffixes
        assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in format.suffixes)
        assert len(format.description) > 200


@pytest.mark.parametrize(
    ("file", "format"),
    [
        ("small_device_placement.json", "device-placement"),
        ("small_pipedream.txt", "pipedream"),
        ("small_piper.json", "piper"),
        ("layer_graph.json", "native"),
        ("operator_graph.json", "native"),
    ],
)
def test_content_decides_the_format(small: Path, tmp_path: Path, file: str, format: str) -> None:
    """A file is recognised by what it holds, whatever its name ends with."""
    text = (small / file).read_text()
    for name in (file, "instance", "instance.json", "instance.txt"):
        (tmp_path / name).write_text(text)
        instance = read(tmp_path / name)
        assert instance.format == format
        assert instance.path == str(tmp_path / name)
        assert instance.name == instance.graph.name or instance.name == Path(name).stem


@pytest.mark.parametrize("file", ["small_device_placement.json", "small_piper.json", "layer_graph.json"])
def test_the_order_of_fields_does_not_matter(small: Path, tmp_path: Path, file: str) -> None:
    """A file is recognised even where the fields that tell its format come after a lot of others."""
    data = json.loads((small / file).read_text())
    fields = {"note": "x" * 200_000, **dict(reversed(data.items()))}
    if "schema" in data:
        fields = {"source": {"note": "x" * 200_000}, **dict(reversed(data.items()))}
        fields.pop("hash", None)
    (tmp_path / "late.json").write_text(json.dumps(fields))
    assert read(tmp_path / "late.json").graph == read(small / file).graph


def test_a_byte_order_mark_and_windows_line_ends_are_taken(small: Path, tmp_path: Path) -> None:
    """Files that passed through other editors read the same."""
    text = (small / "small_pipedream.txt").read_text()
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert read(tmp_path / "a.txt").graph == read(small / "small_pipedream.txt").graph


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no known format"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe", "not UTF-8 text"),
        (b"hello\nworld\n", "no known format"),
    ],
)
def test_unknown_content_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """Empty, binary and foreign files give a FormatError that names the file."""
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        read(path)
    assert caught.value.path == str(path)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    """What cannot be opened as a file gives a FormatError."""
    for path in (tmp_path, tmp_path / "absent.json", "a\0b.json", tmp_path / ("x" * 5000)):
        with pytest.raises(FormatError, match="cannot be read"):
            read(path)


def test_huge_files_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file above the limit is refused by its size; an endless device is read up to the limit only."""
    monkeypatch.setattr("balance.problems.model.files.LARGEST_FILE", 1000)
    path = tmp_path / "huge.json"
    with open(path, "wb") as file:
        file.truncate(10**12)  # sparse: takes no room
    with pytest.raises(FormatError, match="larger than"):
        read(path)
    if os.path.exists("/dev/zero"):
        with pytest.raises(FormatError, match="larger than"):
            read("/dev/zero")


@pytest.mark.parametrize("opening", ["[", '{"nodes":', '{"schema": "dnn-balance/graph", "source":['])
@pytest.mark.parametrize("depth", [100, 990, 100_000])
def test_deep_nesting_is_refused(tmp_path: Path, opening: str, depth: int) -> None:
    """Deeply nested JSON ends in a FormatError, not in a recursion limit."""
    closing = {"[": "]", "{": "}"}
    text = opening * depth + "0" + "".join(closing[c] for c in reversed(opening) if c in closing) * depth
    path = tmp_path / "deep.json"
    path.write_text(text)
    for format in ("native", "device-placement", "piper"):
        with pytest.raises(FormatError):
            read(path, format)


def test_unknown_format_names_the_nearest(small: Path, tmp_path: Path) -> None:
    """A misspelt format is an option error with a suggestion."""
    with pytest.raises(OptionError, match="did you mean 'piper'"):
        read(small / "small_piper.json", "pipper")
    with pytest.raises(OptionError, match="no file format"):
        write(CostGraph.chain([1.0]), tmp_path / "x", "onnx")


def test_what_is_no_instance_cannot_be_written(tmp_path: Path) -> None:
    """A wrong argument is named by its type; a format that is no text is unknown."""
    with pytest.raises(OptionError, match="got NoneType"):
        write(None, tmp_path / "x")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="no file format 3"):
        read(tmp_path / "x", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph": None}, "graph of an instance cannot be of type NoneType"),
        ({"cluster": 4}, "cluster of an instance cannot be of type int"),
        ({"parameters": []}, "parameters of an instance"),
        ({"notes": "one sentence"}, "must be a list of sentences"),
    ],
)
def test_an_instance_is_checked(changes: dict[str, Any], message: str) -> None:
    """A sentence given in place of a list of them would become its letters."""
    with pytest.raises(ProblemError, match=message):
        Instance(**{"graph": CostGraph.chain([1.0]), **changes})


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_fifty_megabytes_of_nesting(tmp_path: Path, opening: str) -> None:
    """A large hostile file is refused at once."""
    path = tmp_path / "deep.json"
    path.write_text(opening * (50_000_000 // len(opening)))
    for format in (None, "piper"):
        with pytest.raises(FormatError, match="too deeply"):
            read(path, format)


@pytest.mark.parametrize(
    ("file", "format", "line", "field"),
    [
        ("small_pipedream.txt", "native", 1, None),
        ("small_pipedream.txt", "piper", 1, None),
        ("small_piper.json", "device-placement", None, "maxSizePerFPGA"),
        ("small_piper.json", "pipedream", 1, None),
        ("small_device_placement.json", "piper", None, "maxDevices"),
        ("small_device_placement.json", "native", None, "schema"),
        ("layer_graph.json", "piper", None, "maxDevices"),
    ],
)
def test_a_wrong_format_is_refused_with_the_place(
    small: Path, file: str, format: str, line: int | None, field: str | None
) -> None:
    """A file read in a format that it does not have names the first line or field that does not fit."""
    with pytest.raises(FormatError) as caught:
        read(small / file, format)
    assert (caught.value.path, caught.value.line, caught.value.field) == (str(small / file), line, field)


def test_a_failed_write_leaves_the_old_file(small: Path, tmp_path: Path) -> None:
    """Nothing is written over a good file before the new one is complete."""
    path = tmp_path / "good.json"
    path.write_text("precious")
    with pytest.raises(FormatError, match="device kinds"):
        write(
            Instance(CostGraph.chain([1.0]), read(small / "small_device_placement.json").cluster),
            path,
            "device-placement",
        )
    with pytest.raises(FormatError, match=r"good\.json"):
        write(CostGraph.chain([1.0]), path, "piper")
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["good.json"]


def test_the_suffix_chooses_the_format_for_writing(tmp_path: Path) -> None:
    """``.txt`` is PipeDream's, ``.json`` and everything else our own."""
    graph = CostGraph.chain([1.0, 2.0])
    for name in ("a.json", "a", "a.dat"):
        write(graph, tmp_path / name)
        assert json.loads((tmp_path / name).read_text())["schema"] == "dnn-balance/graph"
    write(graph, tmp_path / "a.txt")
    assert "forward_compute_time=1000.0" in (tmp_path / "a.txt").read_text()


def test_a_read_only_format_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format without write_text says so."""
    import dataclasses

    read_only = tuple(dataclasses.replace(f, writes=False) for f in list_formats())
    monkeypatch.setattr(formats, "_formats", lambda: read_only)
    with pytest.raises(FormatError, match="not written"):
        write(CostGraph.chain([1.0]), tmp_path / "x.json", "native")
