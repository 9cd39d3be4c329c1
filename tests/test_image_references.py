"""Places of images' bytes: references, paths and `data:` URLs in columns, bytes moved to scratch."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.images.read import BuildImageReader
from recordmill.pipeline.build.worker.packing import ImageSpill
from recordmill.pipeline.sources.faults import Faults
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.images import (
    Reference,
    file_path,
    inline,
    parse,
    to_file,
    to_piece,
    to_scratch,
    with_sides,
)
from recordmill.pipeline.sources.options import Csv
from recordmill.pipeline.sources.typing.values import typed_values
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.images.image_header import ImageError
from tests.messages import assert_names, raises
from tests.tables import FILES, read

OUTSIDE = "absolute, URL, folder"  # facts of the message


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**62), st.integers(0, 2**62), st.binary())
def test_a_reference_is_read_as_it_was_made(path: str, offset: int, length: int, data: bytes) -> None:
    assert parse(to_file(path)) == Reference(path)
    assert parse(to_piece(path, offset, length)) == Reference(path, offset, length)
    assert parse(to_scratch(path, offset, length)) == Reference(path, offset, length, in_scratch=True)
    assert parse(inline(data)) == Reference(data=data)
    sized = with_sides(to_file(path), "200 x 100")
    assert sized is not None
    assert (parse(sized), file_path(sized)) == (Reference(path, sides="200 x 100"), path)
    assert with_sides(to_file(path), "0 x 100") == to_file(path)


def test_anything_else_is_no_reference() -> None:
    with raises(ValueError, "b'x'"):
        parse(b"x.png")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a.png", to_file("rows/a.png")),
        ("../a/./b.png", to_file("a/b.png")),
        ("/data/a.png", to_file("a.png")),  # absolute, inside the root
        ("/elsewhere/a.png", OUTSIDE),
        ("../../a.png", OUTSIDE),
        ("/data/../a.png", OUTSIDE),
        ("gs://bucket/a.png", OUTSIDE),
        ("data:image/png;base64,aGk=", inline(b"hi")),
        ("DATA:;BASE64,aG\nk=", inline(b"hi")),
        ("data:,a%20b", inline(b"a b")),
        ("data:image/png;base64,aGk", "data: URL, base64"),
        ("data:image/png", "data: URL, comma"),
        (" ", None),
        (None, None),
    ],
)
def test_a_column_of_paths_and_urls(value: str | None, expected: bytes | str | None) -> None:
    for many in (False, True):
        faults: Faults = {}
        values: Any = [["a", value]] if many else [value]
        kind = pa.list_(pa.string()) if many else pa.string()
        column = Column(ColumnType.IMAGE, many)
        found = typed_values("p", column, pa.array(values, kind), ("/data", "rows"), faults).to_pylist()
        item = found[0][1] if many else found[0]
        if isinstance(expected, str):
            assert_names(faults[0].message, *expected.split(", "))
        else:
            assert (item, faults) == (expected, {})


def test_bytes_move_into_one_scratch_file(tmp_path: Path) -> None:
    with ImageSpill(str(tmp_path)) as spill:
        moved = spill.move(pa.chunked_array([[inline(b"one"), to_file("a.png")], [inline(b"")]]))
        lists = spill.move(pa.chunked_array([pa.array([[inline(b"two")], [], [to_file("b"), inline(b"3")]])]))
    pictures = BuildImageReader(BeamFiles(), ["/nowhere"], str(tmp_path))
    assert pictures.read(0, moved[0].as_py()) == b"one"
    with raises(ImageError, "empty"):
        pictures.read(0, moved[2].as_py())
    assert moved[1].as_py() == to_file("a.png")
    assert [len(one) for one in lists.to_pylist()] == [1, 0, 2]
    assert pictures.read(0, lists[2].as_py()[1]) == b"3"
    assert len(list(tmp_path.iterdir())) == 1


def test_where_nothing_is_inline_there_is_no_file(tmp_path: Path) -> None:
    with ImageSpill(str(tmp_path)) as spill:
        column = pa.chunked_array([[to_file("a.png")]])
        assert spill.move(column) is column
    assert not list(tmp_path.iterdir())


def test_a_piece_of_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"0123456789")
    pictures = BuildImageReader(BeamFiles(), [str(tmp_path)], "/nowhere")
    assert pictures.read(0, to_piece("a.tar", 3, 4)) == b"3456"
    with raises(ImageError, "b.tar", "No such file"):
        pictures.read(0, to_piece("b.tar", 3, 4))


def test_an_ending_that_the_paths_lack(tmp_path: Path) -> None:
    folder = tmp_path / "[a] train"
    folder.mkdir()
    (folder / "b.jpg").symlink_to("/etc/passwd")
    (tmp_path / "rows.csv").write_text(f"id\na\nb\n../c\n{folder}/d\n")
    images = f"{escape(str(folder))}/*.jpg"
    source = reader_of(Csv(format="csv", path=str(tmp_path / "rows.csv"), images=images))
    found = read(source, {"id": Column(ColumnType.IMAGE)})
    assert source.image_root(FILES) == str(folder)
    assert [row["id"] for row in found.rows] == [b"fa.jpg", b"fd.jpg"]
    assert [reject.reason for reject in found.rejects] == ["forbidden_path", "forbidden_path"]
