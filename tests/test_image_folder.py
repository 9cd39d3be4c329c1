"""Folders of images: by class, or with metadata in CSV or JSON lines."""

import csv
import io
import json
import os
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.sources.batches import even_parts
from recordmill.pipeline.sources.faults import Reject, SourceError
from recordmill.pipeline.sources.formats import csv as csv_source
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats import text as text_source
from recordmill.pipeline.sources.options import ImageFolder
from recordmill.pipeline.sources.paths import Inside
from recordmill.pipeline.sources.source_reader import Plan, SourceReader
from recordmill.pipeline.sources.typing.arrays import arrow_type
from recordmill.transforms.base.columns import Column, Columns, ColumnType
from tests.constants import constants
from tests.messages import assert_names, raises

TEXT, CATEGORY, NUMBER, INTEGER, PATH, *_ = map(Column, ColumnType)
FILES = BeamFiles()
IMAGE: Columns = {"image": PATH}
CLASSES: Columns = {"image": PATH, "label": CATEGORY}
COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")


def source(folder: object) -> SourceReader[Any]:
    return reader_of(ImageFolder(format="image_folder", path=str(folder)))


def fill(folder: Path, *names: str, **texts: str | bytes) -> Path:
    """Makes stand-ins for images, and metadata files: `csv`, `jsonl`, or in a subfolder `x__csv`."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"12345")
    for name, text in texts.items():
        *parts, suffix = name.split("__")
        file = folder.joinpath(*parts, f"metadata.{suffix}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def read(folder: Path, columns: Columns, chunk_bytes: int = 1 << 23) -> tuple[list[dict[str, Any]], list[Reject]]:
    """Returns rows, with image paths for references and `at` for their position; and rejects."""
    images = source(folder)
    rows, rejects = list[dict[str, Any]](), list[Reject]()
    for chunk in images.plan(FILES, columns, chunk_bytes).chunks:
        for block in images.read(chunk, FILES, columns, None):
            assert [block.table[name].type for name in columns] == [arrow_type(column) for column in columns.values()]
            rejects += block.rejects
            for row in block.table.to_pylist():
                paths = {name: row[name][1:].decode() for name in columns if columns[name] == PATH}
                rows.append(row | paths | {"at": images.locate(chunk, row.pop("@position"))})
    return rows, rejects


@pytest.mark.parametrize(("asked", "there"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_a_name_in_another_unicode_form_is_the_same_image(tmp_path: Path, asked: str, there: str) -> None:
    fill(tmp_path, f"{there}/{there}.png", csv=f"file_name\n{asked}/{asked}.png\n")
    rows, rejects = read(tmp_path, IMAGE)
    assert [row["image"] for row in rows] == [f"{there}/{there}.png"]
    assert [row["@key"] for row in rows] == [f"{COMPOSED}/{COMPOSED}.png".encode()]
    assert rejects == []
    assert plan(tmp_path).notes == []


def test_the_exact_name_comes_first_and_of_several_alike_none_is_taken(tmp_path: Path) -> None:
    both = COMPOSED + DECOMPOSED
    fill(tmp_path, f"{COMPOSED}.png", f"{DECOMPOSED}.png", f"{COMPOSED * 2}.png", f"{DECOMPOSED * 2}.png")
    fill(tmp_path, csv=f"file_name\n{COMPOSED}.png\n{DECOMPOSED}.png\n{both}.png\n")
    rows, _ = read(tmp_path, IMAGE)
    assert [row["image"] for row in rows] == [f"{COMPOSED}.png", f"{DECOMPOSED}.png", f"{both}.png"]


def plan(folder: Path, columns: Columns = IMAGE) -> Plan:
    return source(folder).plan(FILES, columns, 1 << 20)


def found(rejects: list[Reject]) -> list[tuple[int, str, str | None]]:
    return [(reject.position, reject.reason, reject.column) for reject in rejects]


def values(notes: list[str]) -> list[str]:
    """Returns the part of each note after its words."""
    return [note.rpartition(": ")[2] for note in notes]


def test_class_folders(tmp_path: Path) -> None:
    fill(
        tmp_path, "cat/a.JPG", "cat/deep/b.png", "dog/c.tiff", "root.webp", "dog/.hidden.png", "dog/notes.txt", "x.npy"
    )
    rows, rejects = read(tmp_path, CLASSES | {"file_name": TEXT})
    assert [(row["image"], row["label"], row["@key"], row["at"]) for row in rows] == [
        ("cat/a.JPG", "cat", b"cat/a.JPG", ("cat/a.JPG", None)),
        ("cat/deep/b.png", "deep", b"cat/deep/b.png", ("cat/deep/b.png", None)),
        ("dog/c.tiff", "dog", b"dog/c.tiff", ("dog/c.tiff", None)),
    ]
    assert [row["file_name"] for row in rows] == [row["image"] for row in rows]
    assert found(rejects) == [(3, "missing_value", "label")]
    assert rejects[0].key == "root.webp"
    assert len(read(tmp_path, IMAGE)[0]) == 4


def test_the_plan_of_class_folders(tmp_path: Path) -> None:
    made = plan(fill(tmp_path, "cat/a.jpg", "dog/b.png", "dog/notes.txt", "a.npy", "b.npy", "c.npy"))
    assert (made.rows, made.bytes, [file.path for file in made.inputs]) == (2, 10, ["cat/a.jpg", "dog/b.png"])
    assert made.notes == ["other files, left out: 4 (a.npy, b.npy, c.npy and 1 more)"]
    assert [(chunk.file, chunk.bytes, chunk.work.names) for chunk in made.chunks] == [
        ("", 10, ["cat/a.jpg", "dog/b.png"])
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 5000, 1 << 14, 1 << 23])
def test_a_listing_is_the_same_however_it_is_cut(tmp_path: Path, chunk_bytes: int) -> None:
    names = [f"{number % 3}/{number:02}.png" for number in range(20)]
    rows, _ = read(fill(tmp_path, *names), CLASSES, chunk_bytes)
    assert [row["image"] for row in rows] == sorted(names)
    chunks = source(tmp_path).plan(FILES, CLASSES, chunk_bytes).chunks
    assert len(chunks) == min(20, -(-20 * 2048 // chunk_bytes))
    assert sum(chunk.bytes for chunk in chunks) == 100


def test_numbers_as_folder_names(tmp_path: Path) -> None:
    fill(tmp_path, "0/a.png", "-3/b.png", "1.5/c.png", "x/d.png")
    rows, rejects = read(tmp_path, {"label": INTEGER})
    assert [row["label"] for row in rows] == [-3, 0]
    assert found(rejects) == [(2, "wrong_type", "label"), (3, "wrong_type", "label")]
    assert [row["label"] for row in read(tmp_path, {"label": NUMBER})[0]] == [-3, 0, 1.5]


def test_names_keep_their_form_and_keys_are_composed(tmp_path: Path) -> None:
    fill(tmp_path, f"{DECOMPOSED}/{DECOMPOSED}.png")
    [row], _ = read(tmp_path, CLASSES)
    assert row["image"] == f"{DECOMPOSED}/{DECOMPOSED}.png"
    assert row["@key"].decode() == f"{COMPOSED}/{COMPOSED}.png"


def test_a_name_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    fill(tmp_path, "a.png", os.fsdecode(b"\xff.png"))
    assert len(read(tmp_path, IMAGE)[0]) == 1
    assert plan(tmp_path).notes == ["other files, left out: 1 ('\\udcff.png')"]


def test_odd_folder_names(tmp_path: Path) -> None:
    folder = fill(tmp_path / "[v2] *", "x/a.png").parent / "[v2] *"
    assert [row["image"] for row in read(folder, CLASSES)[0]] == ["x/a.png"]
    assert source(f"{folder}/").root(FILES) == str(folder)


BOTH = pytest.mark.parametrize("suffix", ["csv", "jsonl"])


def metadata(suffix: str, *rows: dict[str, Any]) -> str:
    """Returns the rows as a file; missing values are empty cells of CSV."""
    if suffix == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


@BOTH
def test_metadata_gives_the_rows(tmp_path: Path, suffix: str) -> None:
    first = {"file_name": "a.png", "text": 'a "b",\nc', "kind": "x", "price": 1.5, "count": 3}
    second = {"file_name": "./x/../b.jpg", "text": "", "kind": "y", "price": -2, "count": -1}
    fill(tmp_path, "a.png", **{suffix: metadata(suffix, first, second)})
    columns = {"text": TEXT, "kind": CATEGORY, "price": NUMBER, "count": INTEGER, "image": PATH, "file_name": CATEGORY}
    rows, rejects = read(tmp_path, columns)
    asked = ("text", "kind", "price", "count")
    assert [[row[name] for name in asked] for row in rows] == [[row[name] for name in asked] for row in (first, second)]
    named = [(row["image"], row["file_name"], row["@key"]) for row in rows]
    assert named == [("a.png", "a.png", b"a.png"), ("b.jpg", "b.jpg", b"b.jpg")]
    lines = (2, 4) if suffix == "csv" else (1, 2)
    assert [row["at"] for row in rows] == [(f"metadata.{suffix}", line) for line in lines]
    assert not rejects


@BOTH
def test_metadata_below_the_root(tmp_path: Path, suffix: str) -> None:
    one = metadata(suffix, {"file_name": "a.png"}, {"file_name": "../y/b.png"}, {"file_name": "../../c.png"})
    fill(tmp_path, "x/a.png", "y/b.png", **{f"x__{suffix}": one, "y__csv": "file_name,label\nd/e.png,\n"})
    rows, rejects = read(tmp_path, IMAGE)
    assert [row["image"] for row in rows] == ["x/a.png", "y/b.png", "y/d/e.png"]
    assert found(rejects) == [(3 if suffix == "csv" else 2, "forbidden_path", "file_name")]


@BOTH
def test_label_is_the_metadatas_or_the_folders_name(tmp_path: Path, suffix: str) -> None:
    with_label = metadata(suffix, {"file_name": "x/a.png", "label": "cat"}, {"file_name": "b.png", "label": ""})
    rows, rejects = read(fill(tmp_path / "given", **{suffix: with_label}), CLASSES)
    assert ([row["label"] for row in rows], [reject.key for reject in rejects]) == (["cat"], ["b.png"])
    without = metadata(suffix, {"file_name": "x/a.png"}, {"file_name": "b.png"}, {"file_name": "/c.png"})
    rows, rejects = read(fill(tmp_path / "derived", **{suffix: without}), CLASSES)
    assert ([row["label"] for row in rows], [reject.key for reject in rejects]) == (["x"], ["b.png", None])
    faults = [(reject.reason, reject.column) for reject in rejects]
    assert faults == [("missing_value", "label"), ("forbidden_path", "file_name")]


@BOTH
def test_the_plan_of_metadata_tells_what_is_left_out(tmp_path: Path, suffix: str) -> None:
    text = metadata(suffix, *({"file_name": name, "t": ""} for name in ("a.png", "none.png", "odd.bin", "a.png")))
    fill(tmp_path, "a.png", "odd.bin", "b.png", "c.png", "d.png", "e.png", "notes.txt", **{suffix: text})
    made = plan(tmp_path)
    assert made.rows == 4
    assert [file.path for file in made.inputs] == ["a.png", f"metadata.{suffix}", "odd.bin"]
    assert made.bytes == 10 + len(text)
    assert values(made.notes) == ["1 (a.png)", "4 (b.png, c.png, d.png and 1 more)", "1 (notes.txt)", "t"]
    assert_names(made.notes[1], f"metadata.{suffix}")


CSV_FAULTS = {
    "no path": (",x,1,2", "missing_value", "file_name"),
    "no number": ("a.png,x, ,2", "missing_value", "n"),
    "many digits": ("a.png,x,1," + "1" * 5000, "wrong_type", "i"),
    "a long text": (f"a.png,{'x' * 200_000},1,2", None, None),
}


@pytest.mark.parametrize(("record", "reason", "column"), CSV_FAULTS.values(), ids=CSV_FAULTS)
def test_csv_cells(tmp_path: Path, record: str, reason: str | None, column: str | None) -> None:
    text = f"file_name,t,n,i\nfirst.png,x,1,2\n{record}\nlast.png,x,1,2\n"
    columns = {"image": PATH, "t": TEXT, "n": NUMBER, "i": INTEGER}
    rows, rejects = read(fill(tmp_path, csv=text), columns)
    assert [rows[0]["image"], rows[-1]["image"]] == ["first.png", "last.png"]
    assert found(rejects) == ([] if reason is None else [(2, reason, column)])
    assert len(rows) + len(rejects) == 3


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_csv_lines(tmp_path: Path, end: str, mark: str) -> None:
    records = ["", "file_name,t", "a.png,x", "", f'b.png,"y{end}{end}z"', "bad", "c.png,z", "", ""]
    fill(tmp_path, csv=mark + end.join(records))
    for batch in (1, 2, 100):
        with constants(csv_source, BATCH_RECORDS=batch):
            rows, rejects = read(tmp_path, {"t": TEXT})
            assert [(row["t"], row["at"][1]) for row in rows] == [("x", 3), (f"y{end}{end}z", 5), ("z", 9)]
            assert found(rejects) == [(7, "malformed_row", None)]
            [chunk] = source(tmp_path).plan(FILES, IMAGE, 1000).chunks
            assert sum(block.positions for block in source(tmp_path).read(chunk, FILES, IMAGE, ())) >= 9


@pytest.mark.parametrize(
    ("texts", "columns", "facts"),
    [
        ({}, IMAGE, ("metadata", ".avif, .bmp")),
        ({"csv": ""}, IMAGE, ("metadata.csv", "'file_name'")),
        ({"csv": "filename,t\na,b\n"}, IMAGE, ("'file_name'", "filename, t", "'filename'")),
        ({"csv": "file_name,t,t\na,b,c\n"}, {"t": TEXT}, ("metadata.csv", "'t'")),
        ({"tsv": "file_name\n", "parquet": "x"}, IMAGE, ("metadata.parquet and metadata.tsv",)),
        ({"parquet": "x"}, IMAGE, ("metadata.parquet", "Parquet")),
        ({"csv": "depth_file_name\na\n"}, IMAGE, ("'image'", "depth_file_name, depth")),
        ({"csv": "file_name\na\n", "x__csv": "a_file_name\na\n"}, IMAGE, ("x/metadata.csv", "'file_name'")),
        ({"csv": 'file_name,"t"x\n'}, IMAGE, ("metadata.csv", "header", "CSV")),
        ({"csv": "file_name\n\n"}, IMAGE, ("metadata.csv", "no row")),
        ({"csv": "file_name,text\na,b\n"}, {"tex": TEXT}, ("'tex'", ", image, label, split", "'text'")),
        ({"jsonl": "x\n"}, IMAGE, ("metadata.jsonl", "JSON object")),
        ({"jsonl": '{"a": 1}\n'}, IMAGE, ("metadata.jsonl", "'file_name'", " a")),
        ({"csv": "file_name\n", "jsonl": "{}"}, IMAGE, ("metadata.csv and metadata.jsonl",)),
    ],
)
def test_metadata_that_cannot_be_read(
    tmp_path: Path, texts: dict[str, str], columns: Columns, facts: tuple[str, ...]
) -> None:
    with raises(SourceError, *facts):
        plan(fill(tmp_path, **texts), columns)


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with raises(SourceError, "nowhere", "folder"):
        plan(tmp_path / "nowhere")
    fill(tmp_path, "a.png", "a.zip", csv="")
    with raises(SourceError, "metadata.csv", f"`path: {tmp_path}`"):
        plan(tmp_path / "metadata.csv")
    with raises(SourceError, "a.zip", "unpack"):
        plan(tmp_path / "a.zip")
    (tmp_path / "metadata.csv").unlink()
    with raises(SourceError, "'text'", "metadata", "image, file_name, label, split"):
        plan(tmp_path, {"text": TEXT})
    with raises(SourceError, "'lable'", "'label'"):
        plan(tmp_path, {"lable": CATEGORY})


def test_a_folder_that_fails_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(BeamFiles, "match", fail)
    with raises(SourceError, tmp_path, "Permission denied"):
        plan(tmp_path)


def test_splits_and_classes_by_folders(tmp_path: Path) -> None:
    fill(tmp_path, "train/cat/1.png", "train/deep/dog/2.png", "test/3.png", "4.png")
    split, label = (Column(ColumnType.CATEGORY, optional=True, many=many) for many in (False, True))
    rows, _ = read(tmp_path, {"split": split, "label": label})
    places = [(row["split"], row["label"]) for row in rows]
    assert places == [(None, None), ("test", None), ("train", ["cat"]), ("train", ["dog"])]
    rows, rejects = read(tmp_path, {"label": CATEGORY})
    assert [row["label"] for row in rows] == ["test", "cat", "dog"]
    fill(tmp_path, jsonl=metadata("jsonl", {"file_name": "train/a/1.png", "split": "x"}, {"file_name": "test/3.png"}))
    rows, _ = read(tmp_path, {"split": split, "label": label})
    assert [(row["split"], row["label"]) for row in rows] == [("x", ["a"]), (None, ["test"])]


def write_beside(folder: Path, **contents: bytes) -> None:
    for name, content in contents.items():
        stem, ending = name.rsplit("_", 1)
        (folder / f"{stem}.{ending}").write_bytes(content)


def test_captions_in_text_files(tmp_path: Path) -> None:
    fill(tmp_path, "a.png", "b.jpg", "c.png", "d.png", "e.png", "f.png")
    write_beside(
        tmp_path, a_txt=b"one\n\r\n", b_txt=b"\xef\xbb\xbfone\ntwo", c_txt=b"", d_txt=b"\xff", z_txt=b"", a_json=b""
    )
    rows, rejects = read(tmp_path, IMAGE | {"text": TEXT}, 1)
    assert [(row["image"], row["text"]) for row in rows] == [("a.png", "one\n"), ("b.jpg", "one\ntwo"), ("c.png", "")]
    reasons = {reject.key: reject.reason for reject in rejects}
    assert reasons == {"d.png": "invalid_utf8", "e.png": "missing_value", "f.png": "missing_value"}
    made = plan(tmp_path, IMAGE | {"text": TEXT})
    assert [file.path for file in made.inputs if not file.path.endswith("g")] == ["a.txt", "b.txt", "c.txt", "d.txt"]
    assert values(made.notes) == ["2", "1 (z.txt)", "1 (a.json)"]
    assert values(plan(tmp_path).notes) == ["5 (a.json, a.txt, b.txt and 2 more)", "1 (z.txt)"]
    write_beside(tmp_path, e_txt=b"7", f_txt=b" 2.5\n")
    number = Column(ColumnType.NUMBER, optional=True)
    rows, rejects = read(tmp_path, {"text": number})
    assert [row["text"] for row in rows] == [None, 7, 2.5]
    assert [reject.reason for reject in rejects] == ["wrong_type"] * 3


def test_captions_in_json_files(tmp_path: Path) -> None:
    fill(tmp_path / "x", "a.png", "b.png", "c.png", "d.png", "e.png", "f.png")
    objects = {"a_json": {"n": 1, "o": [{"t": "x"}, {"t": "y"}], "mask": "m.png"}, "b_json": {"n": "1"}, "e_json": [1]}
    contents = {name: json.dumps(row, indent=2).encode() for name, row in objects.items()}
    write_beside(tmp_path / "x", **contents, c_json=b'{"n": 2', d_json=b'{"n": 3, "text": "t"}')
    columns = {"n": NUMBER, "o.t": Column(ColumnType.TEXT, many=True, optional=True)}
    columns |= {
        name: Column(kind, optional=True) for name, kind in (("mask", ColumnType.IMAGE), ("text", ColumnType.TEXT))
    }
    rows, rejects = read(tmp_path, columns)
    assert [(row["n"], row["o.t"], row["mask"], row["text"]) for row in rows] == [
        (1, ["x", "y"], b"fx/m.png", None),
        (3, None, None, "t"),
    ]
    faults = [(1, "wrong_type", "n"), (2, "malformed_row", None), (4, "malformed_row", None), (5, "missing_value", "n")]
    assert found(rejects) == faults
    assert_names(rejects[1].message, ".json", "',' delimiter, character 8")
    with raises(SourceError, "'m'", ".json", ", o.t, mask, text"):
        plan(tmp_path, {"m": TEXT})
    with constants(text_source, MAX_LINE_BYTES=30):
        assert [reject.reason for reject in read(tmp_path, columns)[1]].count("too_large") == 1


def test_a_caption_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a.png", "b.png")
    write_beside(tmp_path, a_txt=b"x", b_txt=b"y")
    images, columns = source(tmp_path), {"text": TEXT}
    [chunk] = images.plan(FILES, columns, 1 << 20).chunks
    (tmp_path / "a.txt").unlink()
    [block] = images.read(chunk, FILES, columns, None)
    assert (found(block.rejects), block.table["text"].to_pylist()) == ([(0, "unreadable", "text")], ["y"])
    assert_names(block.rejects[0].message, ".txt", "No such file or directory")
    assert block.rejects[0].path == "a.txt"

    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(BeamFiles, "open", fail)
    with raises(OSError, "Too many open files"):
        list(images.read(chunk, FILES, columns, None))


def test_metadata_of_all_formats_together(tmp_path: Path) -> None:
    below = '{"file_name": "b.png", "t": "z"}'
    fill(tmp_path, "a.png", "x/b.png", tsv='file_name\tt\tn\na.png\t"x\ty"\t1\n', x__jsonl=below)
    rows_of = {"file_name": ["c.png", "../a.png"], "n": [3, None], "boxes": [{"at": [[1, 2]]}, {"at": []}]}
    (tmp_path / "y").mkdir()
    pq.write_table(pa.table(rows_of), tmp_path / "y" / "metadata.parquet")
    columns = {name: Column(kind, optional=True) for name, kind in (("t", ColumnType.TEXT), ("n", ColumnType.INTEGER))}
    columns |= {"image": PATH, "boxes.at": Column(ColumnType.NUMBER, many=True, optional=True)}
    rows, rejects = read(tmp_path, columns)
    assert [(row["image"], row["t"], row["n"], row["boxes.at"], row["at"][0]) for row in rows] == [
        ("a.png", "x\ty", 1, None, "metadata.tsv"),
        ("x/b.png", "z", None, None, "x/metadata.jsonl"),
        ("y/c.png", None, 3, [1, 2], "y/metadata.parquet"),
        ("a.png", None, None, [], "y/metadata.parquet"),
    ]
    assert values(plan(tmp_path, columns).notes) == ["1 (a.png)"]
    assert plan(tmp_path, columns).names == ["image", "t", "n", "boxes", "boxes.at", "file_name", "label", "split"]


def test_several_images_a_row(tmp_path: Path) -> None:
    first = {"in_file_name": "i.png", "out_file_name": "o.png", "file_names": ["1.png", "2.png"]}
    more = [{"in_file_name": "j.png", "file_names": []}, {"in_file_name": "data:,x"}, {}, {"in_file_name": "/k.png"}]
    fill(tmp_path, "i.png", "2.png", "3.png", jsonl=metadata("jsonl", first, *more))
    many, one = (Column(ColumnType.IMAGE, optional=True, many=many) for many in (True, False))
    columns = {"in": one, "out": one, "images": many, "out_file_name": Column(ColumnType.TEXT, optional=True)}
    rows, rejects = read(tmp_path, columns)
    assert [(row["in"], row["out"], row["images"], row["out_file_name"]) for row in rows] == [
        (b"fi.png", b"fo.png", [b"f1.png", b"f2.png"], "o.png"),
        (b"fj.png", None, [], None),
    ]
    assert [row["@key"] for row in rows] == [b"14:5:1.png5:2.png5:i.png5:o.png", b"0:5:j.png0:"]
    faults = [(2, "wrong_type", "in_file_name"), (3, "missing_value", "file_names")]
    assert found(rejects) == [*faults, (4, "forbidden_path", "in_file_name")]
    made = plan(tmp_path, {"in": one})
    assert [file.path for file in made.inputs] == ["2.png", "i.png", "metadata.jsonl"]
    assert values(made.notes) == ["1 (3.png)"]
    rows, rejects = read(tmp_path, {"images": one, "in": many})
    messages = {reject.message for reject in rejects if reject.column == "images"}
    assert_names(messages, "one image", "list")
    assert len(messages) == 1


KEYS = {None: "x/b.png", ("file_name",): "x/b.png", ("image",): "x/b.png", ("t",): "x", ("t", "file_name"): None}


@pytest.mark.parametrize(("key", "known"), KEYS.items())
def test_the_key_of_a_reject(tmp_path: Path, key: tuple[str, ...] | None, known: str | None) -> None:
    fill(tmp_path, csv="file_name,t,n\nx/b.png,x,y\n")
    columns = {"file_name": CATEGORY, "t": CATEGORY, "n": NUMBER, "image": PATH}
    [chunk] = source(tmp_path).plan(FILES, columns, 1 << 20).chunks
    [block] = source(tmp_path).read(chunk, FILES, columns, key)
    assert [(reject.reason, reject.key) for reject in block.rejects] == [("wrong_type", known)]


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(1, 60))
def test_parts_are_even_and_hold_each_row_once(sizes: list[int], limit: int) -> None:
    parts = even_parts(np.array(sizes), limit)
    assert [size for part in parts for size in sizes[part]] == sizes
    assert all(0 < sum(sizes[part]) < limit + max(sizes) for part in parts)


def test_a_path_of_many_folders_is_looked_up_without_an_end_of_the_stack(tmp_path: Path) -> None:
    deep = "é/" * 1200 + "x.png"
    assert Inside(str(tmp_path)).spelled(deep) == deep
    assert Inside(str(tmp_path)).spelled("é" * 5000) == "é" * 5000
    (tmp_path / DECOMPOSED / DECOMPOSED).mkdir(parents=True)
    (tmp_path / DECOMPOSED / DECOMPOSED / "a.png").touch()
    found = Inside(str(tmp_path)).spelled(f"{COMPOSED}/{COMPOSED}/a.png")
    assert found == f"{DECOMPOSED}/{DECOMPOSED}/a.png"
