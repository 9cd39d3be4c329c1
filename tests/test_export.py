"""`recordmill export`: the values that it writes are those of the records."""

import errno
import io
import json
import math
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.dataset.manifest import Span
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.export.export import Column, ExportError, WebDatasetWriter, export, image_file
from recordmill.pipeline.inspection import StoredImage, read_records
from recordmill.transforms.images.image_parts import without_metadata
from recordmill.transforms.images.image_stored import ImageDescription, PixelOptions
from tests import published
from tests.messages import assert_names, raises
from tests.test_adopt import run

OPTIONS: dict[str, Any] = {"label": {"kind": "category"}, "note": {"kind": "raw"}, "text": {"kind": "text"}}
OPTIONS["price"] = {"kind": "number", "normalize": "none"}


def write_small(output: Path, *features: str, **changes: Any) -> Dataset:
    """Writes a version with some features; `changes` are fields of the manifest."""
    described = {name: published.FEATURES[name] for name in features}
    spec = {"splits": dict(published.LAYOUT.weights), "features": {name: OPTIONS[name] for name in features}}
    published.write_version(output, **{"features": described, "spec": spec, **changes})
    return open_dataset(output)


def exported(to: Path) -> list[dict[str, Any]]:
    """Reads the rows of an export as Parquet."""
    return [row for file in sorted((to / "data").iterdir()) for row in pq.read_table(file).to_pylist()]


def image_feature(encoding: str = "original") -> ImageDescription:
    return ImageDescription(
        stored="bytes", encoding=encoding, shape=(None, None, 3), dtype="uint8", offset=(0.0,), scale=(1.0,),
        options=PixelOptions(),
    )  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Dataset:
    return write_small(tmp_path / "small", "label", "price", "text")


def test_parquet_holds_the_rows_of_each_shard(small: Dataset, tmp_path: Path) -> None:
    done = export(small, "parquet", tmp_path / "to", split="test")
    files = sorted((tmp_path / "to/data").iterdir())
    assert [file.name for file in files] == ["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    assert done.rows == len(rows) == small.splits["test"]
    for row, record in zip(rows, read_records(small, "test"), strict=True):
        assert (row["key"], row["split"]) == (record.key, "test")
        assert (row["label"], row["price"]) == (record.values["label"], record.values["price"])
        assert row["text"] == record.values["text"].text


def test_a_sample_of_webdataset_is_one_json(small: Dataset, tmp_path: Path) -> None:
    export(small, "webdataset", tmp_path / "to", split="test")
    with tarfile.open(tmp_path / "to/data/test-00000-of-00002.tar") as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    first = next(read_records(small, "test"))
    row = json.loads(members["00000000.json"])
    assert (row["key"], row["label"]) == (first.key, first.values["label"])


def test_nothing_is_written_over_and_nothing_by_half(tmp_path: Path) -> None:
    dataset = write_small(tmp_path / "small", "label", "note")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").touch()
    with raises(ExportError, tmp_path / "full", "new folder"):
        export(dataset, "parquet", tmp_path / "full")
    with raises(ExportError, "'parket'", "did you mean `parquet`", "webdataset"):
        export(dataset, "parket", tmp_path / "to")
    with raises(ExportError, "row 'row/", "'note'", "UTF-8"):
        export(dataset, "webdataset", tmp_path / "to")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "small"]


def test_packed_texts_are_refused(tmp_path: Path) -> None:
    packed = {**published.FEATURES["text"], "packed": 8, "stored": "bytes"}
    spec = {"features": {"text": {"kind": "text", "pack": 8}}}
    published.write_version(tmp_path / "small", features={"text": packed}, label=None, spec=spec)
    with raises(ExportError, "'text'", "`pack`"):
        export(open_dataset(tmp_path / "small"), "parquet", tmp_path / "to")


def test_the_command_says_what_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small(tmp_path / "small", "label", "text")
    assert run("export", tmp_path / "small", tmp_path / "to", "--to", "parquet") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("200 rows in 6 files, ")
    assert "recordmill init" in printed
    assert run("export", tmp_path / "small", tmp_path / "test", "--to", "parquet", "--split", "test") == 0
    assert [path.name for path in (tmp_path / "test").iterdir()] == ["data"]
    assert "recordmill init" not in capsys.readouterr().out, "without the train split nothing is to build"


def test_a_url_is_no_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_small(tmp_path / "small", "label")
    monkeypatch.chdir(tmp_path)
    assert run("export", tmp_path / "small", "s3://b/to", "--to", "parquet") == 1
    assert_names(" ".join(capsys.readouterr().err.split()), "s3://b/to", "local folder")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]


def test_shards_of_other_versions_may_share_a_file_name(tmp_path: Path) -> None:
    folder = published.write_version(tmp_path / "small")
    manifest = open_dataset(tmp_path / "small").manifest
    other = "20261119T120000Z-4f1c9a2e"
    (folder.parent / other).mkdir()
    first, second, third, fourth = manifest.splits["train"].shards
    (folder / third.file).rename(folder.parent / other / first.file)
    (folder / third.index).rename(folder.parent / other / first.index)
    kept = replace(third, file=first.file, index=first.index, version=other)
    train = replace(manifest.splits["train"], shards=(first, second, kept, fourth))
    features = {"price": published.FEATURES["price"]}
    spec = {**manifest.spec, "features": {"price": OPTIONS["price"]}}
    changed = replace(manifest, splits={**manifest.splits, "train": train}, features=features, spec=spec, label=None)
    done = export(Dataset(folder, changed), "parquet", tmp_path / "to")
    rows = exported(tmp_path / "to")
    assert len({row["key"] for row in rows}) == done.rows == sum(split.records for split in changed.splits.values())


def test_two_spans_may_hold_one_key(small: Dataset, tmp_path: Path) -> None:
    spans = {name: Span("00" * 32, {}, 1, 1, "00" * 32) for name in ("a", "b")}
    splits = {
        name: replace(split, shards=tuple(replace(split.shards[0], span=span) for span in spans))
        for name, split in small.manifest.splits.items()
    }
    spec = {**small.manifest.spec, "key": ["id"]}
    changed = replace(small.manifest, spans=spans, splits=splits, spec=spec)
    done = export(Dataset(small.folder, changed), "parquet", tmp_path / "to")
    rows = exported(tmp_path / "to")
    assert len({(row["span"], row["key"]) for row in rows}) == done.rows == 2 * len({row["key"] for row in rows})


def test_two_features_of_one_column_are_refused(tmp_path: Path) -> None:
    text = {**published.FEATURES["text"], "tokenizer": "characters"}
    features = {"text": text, "text_ids": {"kind": "raw", "stored": "int64"}}
    spec = {"features": {"text": {"kind": "text"}, "text_ids": {"kind": "raw", "type": "int64"}}}
    dataset = write_small(tmp_path / "small", features=features, spec=spec, label=None)
    with raises(ExportError, "'text'", "column 'text_ids'", "rename one"):
        export(dataset, "parquet", tmp_path / "to")


def test_a_list_of_bytes_is_no_image(small: Dataset, tmp_path: Path) -> None:
    WebDatasetWriter.check({"json": Column("json", pa.list_(pa.binary()), list, is_image=False)})
    schema = pa.schema([])
    with WebDatasetWriter(tmp_path, "train", schema) as writer:
        writer.write(next(read_records(small, "test")), {"names": [b"a", b"\xc3\xbc"]})
    with tarfile.open(tmp_path / "data/train.tar") as tar:
        assert json.load(tar.extractfile("00000000.json")) == {"names": ["a", "ü"]}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "facts"),
    [
        (("photo", "Photo"), ("image 'Photo'", "image 'photo'", "use parquet")),
        (("Json",), ("image 'Json'", "row's values", "use parquet")),
    ],
)
def test_a_sample_holds_no_two_files_of_a_name(tmp_path: Path, names: tuple[str, ...], facts: tuple[str, ...]) -> None:
    features = {name: image_feature().to_json() for name in names}
    spec = {"features": {name: {"kind": "image", "size": 12} for name in names}}
    dataset = write_small(tmp_path / "small", features=features, spec=spec, label=None)
    with raises(ExportError, *facts):
        export(dataset, "webdataset", tmp_path / "to")


def frames(format_: str, count: int, **options: Any) -> bytes:
    """Gives an image of some frames."""
    first, *others = (Image.fromarray(np.full((4, 6, 3), 40 * number, np.uint8)) for number in range(count))
    data = io.BytesIO()
    first.save(data, format_, save_all=count > 1, append_images=others, **options)
    return data.getvalue()


@pytest.mark.parametrize("format_", ["PNG", "WEBP", "JPEG"])
@pytest.mark.parametrize("count", [1, 2])
def test_an_original_comes_back_with_every_byte(format_: str, count: int) -> None:
    count = 1 if format_ == "JPEG" else count
    exif = Image.Exif()
    exif[0x0112] = 8
    options = {"exif": exif, "lossless": True} if format_ == "WEBP" else {}
    data = without_metadata(frames(format_, count, **options))
    file = image_file(StoredImage(data, image_feature(), 6))
    assert without_metadata(file.data) == data
    with Image.open(io.BytesIO(file.data)) as image:
        assert (image.getexif()[0x0112], getattr(image, "n_frames", 1)) == (6, count)
        image.load()


def test_exif_of_another_orientation_gives_way() -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    file = image_file(StoredImage(frames("WEBP", 2, exif=exif), image_feature(), 6))
    assert file.data.count(b"EXIF") == 2
    with Image.open(io.BytesIO(file.data)) as image:
        assert (image.getexif()[0x0112], image.n_frames) == (6, 2)  # type: ignore[attr-defined]


def test_a_full_disk_is_named(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")  # as Arrow's, without a file

    monkeypatch.setattr("recordmill.pipeline.export.export._write", full)
    with raises(UserError, tmp_path / "to", "no space", "another folder"):
        app(["export", str(small.folder), str(tmp_path / "to"), "--to", "parquet"], standalone_mode=False)


def test_the_current_folder_is_no_target(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")  # an empty folder may be filled
    monkeypatch.chdir(tmp_path / "here")
    for target in (".", "../here", "../link"):
        with raises(ExportError, f"{target} ", "current folder"):
            export(small, "parquet", Path(target))
    monkeypatch.chdir(tmp_path)
    export(small, "parquet", Path("link"))
    assert (tmp_path / "here/data").is_dir()


@pytest.mark.parametrize("many", [False, True])
def test_a_number_that_json_does_not_know_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    row = published.row

    def odd(number: int) -> dict[str, Any]:
        value = math.inf if number == 9 else 0.5
        return {**row(number), "odd": np.array([value]) if many else value}

    monkeypatch.setattr(published, "row", odd)
    length = {"length": "varying"} if many else {}
    features = {"price": published.FEATURES["price"], "odd": {"kind": "raw", "stored": "float32", **length}}
    raw = {"kind": "raw", "type": "float32", "many": many}
    spec = {"splits": dict(published.LAYOUT.weights), "features": {"price": OPTIONS["price"], "odd": raw}}
    dataset = write_small(tmp_path / "small", features=features, spec=spec, label=None)
    with raises(ExportError, "row 'row/9'", "'odd'", "NaN", "use parquet"):
        export(dataset, "webdataset", tmp_path / "to")


def test_raw_levels_of_16_bits_become_png_of_16_bits() -> None:
    levels = np.arange(0, 60_000, 5_000, np.uint16).reshape(3, 4)
    raw = replace(image_feature("raw"), shape=(3, 4, 1), dtype="uint16", pixel="uint16", options=None)
    file = image_file(StoredImage(levels.astype("<u2").tobytes(), raw))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(file.data))), levels)
