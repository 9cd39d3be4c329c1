"""Files by path and by URL: the same patterns match the same files on both."""

import fnmatch
import io
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem
from hypothesis import assume, given
from hypothesis import strategies as st

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.sources.files import FileInfo
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.globs import escape, folder_prefix, glob_pattern, is_glob, literal_prefix
from recordmill.pipeline.sources.options import ImageFolder, JsonLines
from recordmill.transforms.base.columns import Column, ColumnType
from tests.messages import assert_names, raises

TREE = ("a.jsonl", "b.txt", ".hidden.jsonl", "x/a.jsonl", "x/y/c.jsonl", "x/.git/d.jsonl", "[v2]/e.jsonl", "é/f.jsonl")
BUCKET = {f"fake://bucket/{name}": name.encode() for name in TREE} | {"fake://bucket/x/": b""}
BUCKET |= {"fake://data/cat/a.png": b"12", "fake://data/rows.jsonl": b'{"p": "cat/a.png"}\n' * 3}
BUCKET |= {"fake://named/x/a.png": b"1", "fake://named/x/metadata.csv": b"file_name,t\na.png,text\n"}

CASES = {
    "*.jsonl": ["a.jsonl"],
    ".*.jsonl": [".hidden.jsonl"],
    "?.txt": ["b.txt"],
    "[ab].*": ["a.jsonl", "b.txt"],
    "[!a].*": ["b.txt"],
    "**/*.jsonl": ["[v2]/e.jsonl", "a.jsonl", "x/a.jsonl", "x/y/c.jsonl", "é/f.jsonl"],
    "x/**": ["x/a.jsonl", "x/y/c.jsonl"],
    "x/**/c.jsonl": ["x/y/c.jsonl"],
    "*/a.jsonl": ["x/a.jsonl"],
    "x/.git/*": ["x/.git/d.jsonl"],
    "[[]v2]/*": ["[v2]/e.jsonl"],
    "[[]v2]/e.jsonl": ["[v2]/e.jsonl"],
    "[v2]/e.jsonl": ["[v2]/e.jsonl"],
    "é/*": ["é/f.jsonl"],
    "a.jsonl": ["a.jsonl"],
    "x": [],
    "nothing/*": [],
    "nothing.jsonl": [],
}


class BucketFileSystem(FileSystem):
    """An object store, which reports a missing file only on reading."""

    @classmethod
    def scheme(cls) -> str:
        return "fake"

    def has_dirs(self) -> bool:
        return False

    def _list(self, prefix: str) -> Iterator[FileMetadata]:
        if "forbidden" in prefix:
            raise BeamIOError("List operation failed", {prefix: KeyError("403 forbidden")})
        return (FileMetadata(path, len(data), 5.0) for path, data in BUCKET.items() if path.startswith(prefix))

    def exists(self, path: str) -> bool:
        return path in BUCKET

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, len(BUCKET[path]), 5.0)

    def open(self, path: str, *_: Any, **__: Any) -> Any:
        return LazyStream(path)

    join = split = mkdirs = create = copy = rename = size = last_updated = delete = exists


class LazyStream(io.BytesIO):
    def __init__(self, path: str) -> None:
        super().__init__(BUCKET.get(path, b""))
        self._is_there = path in BUCKET

    def read(self, size: int | None = -1) -> bytes:
        if not self._is_there:
            raise KeyError("404 not found")
        return super().read(size)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


@pytest.mark.parametrize(("pattern", "expected"), CASES.items())
def test_a_pattern_matches_the_same_files_everywhere(tree: Path, pattern: str, expected: list[str]) -> None:
    local = BeamFiles().match(f"{tree}/{pattern}")
    assert [os.path.relpath(file.path, tree) for file in local] == expected
    assert [file.bytes for file in local] == [len(name.encode()) for name in expected]
    assert all(file.modified > 1e9 for file in local)
    url = list(BeamFiles().match(f"fake://bucket/{pattern}"))
    assert url == [FileInfo(f"fake://bucket/{name}", len(name.encode()), 5.0, "", 5.0) for name in expected]


def test_relative_patterns(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert [file.path for file in BeamFiles().match("*.jsonl")] == ["a.jsonl"]
    assert [file.path for file in BeamFiles().match("./x/*.jsonl")] == ["./x/a.jsonl"]


def test_links_are_followed_and_broken_ones_are_listed_empty(tree: Path) -> None:
    (tree / "links").mkdir()
    for name, target in {"up": tree, "self": "self", "broken": "nowhere", "to_x": tree / "x"}.items():
        (tree / "links" / name).symlink_to(target)
    os.mkfifo(tree / "links" / "pipe")
    found = {os.path.relpath(file.path, tree): file.bytes for file in BeamFiles().match(f"{tree}/links/**")}
    assert {"links/broken": 0, "links/self": 0, "links/to_x/a.jsonl": 9}.items() <= found.items()
    assert "links/up/a.jsonl" in found
    assert not [name for name in found if name.startswith("links/up/links/up") or name.endswith("pipe")]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("x", True), ("x/", True), ("a.jsonl", False), ("nothing", False), ("[v2]", True), ("y", False)],
)
def test_folders(tree: Path, path: str, expected: bool) -> None:
    assert BeamFiles().is_folder(f"{tree}/{path}") is expected
    assert BeamFiles().is_folder(f"fake://bucket/{path}") is (expected and not is_glob(path))


def test_open_reads_and_seeks(tree: Path) -> None:
    files = pickle.loads(pickle.dumps(BeamFiles()))
    for path in (f"{tree}/x/a.jsonl", "fake://bucket/x/a.jsonl"):
        with files.open(path) as file:
            assert file.read(3) == b"x/a"
            assert file.seek(2) == file.tell() == 2
            assert file.read() == b"a.jsonl"
            assert file.read(1) == b""


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        ("/nowhere/a.png", ["nowhere"]),
        ("a\0.png", [r"'a\x00.png'", "NUL"]),
        ("fake://bucket/none.png", ["fake://bucket/none.png", "404 not found"]),
        ("https://a.org/a.png", ["https://a.org/a.png", "URL", "download"]),
    ],
)
def test_a_file_that_cannot_be_read_is_an_os_error(path: str, facts: list[str]) -> None:
    with raises(OSError, *facts):
        BeamFiles().open(path).read()


def test_a_bucket_that_cannot_be_listed_is_an_os_error() -> None:
    with raises(OSError, "fake://forbidden/", "'403 forbidden'"):
        BeamFiles().match("fake://forbidden/*")


@pytest.mark.parametrize("path", ["fake://data/rows.jsonl", "fake://data/*.jsonl", "fake://data", "fake://data/"])
def test_json_lines_in_a_bucket(path: str) -> None:
    source = reader_of(JsonLines(format="jsonl", path=path))
    columns = {"p": Column(ColumnType.IMAGE)}
    plan = source.plan(BeamFiles(), columns, 20)
    assert source.root(BeamFiles()) == "fake://data"
    assert [file.path for file in plan.inputs] == ["rows.jsonl", "cat/a.png"]
    blocks = [block for chunk in plan.chunks for block in source.read(chunk, BeamFiles(), columns, True)]
    assert [path for block in blocks for path in block.table["p"].to_pylist()] == [b"fcat/a.png"] * 3


def test_images_and_their_metadata_in_a_bucket() -> None:
    source = reader_of(ImageFolder(format="image_folder", path="fake://data/"))
    plan = source.plan(BeamFiles(), {"image": Column(ColumnType.IMAGE)}, 1 << 20)
    assert list(plan.inputs) == [FileInfo("cat/a.png", 2, 5.0, "", 5.0)]
    [note] = plan.notes
    assert_names(note, "other files", ": 1 (rows.jsonl)")
    columns = {"image": Column(ColumnType.IMAGE), "t": Column(ColumnType.TEXT)}
    source = reader_of(ImageFolder(format="image_folder", path="fake://named"))
    [chunk] = source.plan(BeamFiles(), columns, 1 << 20).chunks
    [block] = source.read(chunk, BeamFiles(), columns, ("t",))
    assert block.table.to_pylist() == [{"image": b"fx/a.png", "t": "text", "@position": 1}]


@given(st.text(alphabet="ab*?[]!/.-^\\é\n", min_size=1, max_size=12))
def test_an_escaped_path_matches_itself_alone(path: str) -> None:
    pattern = escape(path)
    assert glob_pattern(pattern).fullmatch(path)
    assert not glob_pattern(pattern).fullmatch(path + "a")
    assert literal_prefix(pattern) == path
    assert path.startswith(folder_prefix(pattern))


@given(st.text(alphabet="ab*?[]!-^\\&~|", max_size=8), st.text(alphabet="ab[]!-^\\&~|", max_size=4))
def test_a_part_means_what_the_shell_means(pattern: str, name: str) -> None:
    assume("**" not in pattern)
    assert bool(glob_pattern(pattern).fullmatch(name)) == fnmatch.fnmatchcase(name, pattern)
    assert not glob_pattern(f"x{pattern}y").fullmatch(f"x{name}/y")
