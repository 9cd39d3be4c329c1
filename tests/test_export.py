"""`recordmill export`: what it writes, and that its own spec builds the same rows of it again."""

import io
import json
import math
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.manifest import Span
from recordmill.pipeline.export.columns import image_file
from recordmill.pipeline.export.export import export
from recordmill.pipeline.inspection.records import read_records
from recordmill.pipeline.inspection.values import StoredImage
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.rows import open_records
from recordmill.pipeline.spec.model import load_spec
from recordmill.transforms.contract.image_metadata import without_metadata
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import ExportError
from recordmill.transforms.contract.kinds.image import ImageDescription, PixelOptions
from recordmill.transforms.contract.kinds.raw import plain_column
from recordmill.transforms.contract.stored import KEY, Ragged, stored_features
from tests import every_kind as kinds
from tests import published
from tests.messages import assert_names, raises

OPTIONS: dict[str, Any] = {
    "label": {"kind": "category"},
    "note": {"kind": "raw"},
    "price": {"kind": "number", "normalize": "none"},
    "text": {"kind": "text"},
}


def write_small(output: Path, *features: str, **changes: Any) -> Dataset:
    """Writes a version with some features; `changes` are fields of the manifest."""
    described = {name: published.FEATURES[name] for name in features}
    spec = {"splits": dict(published.LAYOUT.weights), "features": {name: OPTIONS[name] for name in features}}
    published.write_version(output, **{"features": described, "spec": spec, **changes})
    return open_dataset(output)


def write_prices(output: Path, options: dict[str, Any], **changes: Any) -> Dataset:
    """Writes a version of one number, stored as 0 to 24.875, with these options."""
    described = {name: value for name, value in options.items() if name != "optional"}
    return write_small(
        output,
        features={"price": {**published.FEATURES["price"], **described}},
        spec={"splits": dict(published.LAYOUT.weights), "features": {"price": {"kind": "number", **options}}},
        label=None,
        statistics={"price": {"mean": 2.0, "variance": 4.0, "median": 3.0}},
        **changes,
    )


def exported(to: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Reads what an export as Parquet holds: its rows, and its spec."""
    rows = [row for file in sorted((to / "data").iterdir()) for row in pq.read_table(file).to_pylist()]
    return rows, yaml.safe_load((to / "dataset.yaml").read_text())


def run(*arguments: object) -> int:
    """Runs the command; gives its exit code."""
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    return int(str(end.value.code))


def image_feature(encoding: str = "original") -> ImageDescription:
    return ImageDescription(
        stored="bytes", encoding=encoding, shape=(None, None, 3), dtype="uint8", offset=(0.0,), scale=(1.0,),
        options=PixelOptions(),
    )  # fmt: skip


def also_stored(monkeypatch: pytest.MonkeyPatch, name: str, of: str) -> None:
    """Stores a value of each row under another name, too."""
    row = published.row
    monkeypatch.setattr(published, "row", lambda number: {**row(number), name: row(number)[of]})


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


def test_the_spec_beside_it_names_classes_and_words_in_the_order_of_their_ids(small: Dataset, tmp_path: Path) -> None:
    export(small, "parquet", tmp_path / "to")
    spec = yaml.safe_load((tmp_path / "to/dataset.yaml").read_text())
    assert spec["features"]["label"] == {"kind": "category", "classes": list(published.CLASSES)}
    assert spec["features"]["price"] == {"kind": "number", "normalize": "none"}
    words = (tmp_path / "to" / spec["features"]["text"]["vocabulary"]).read_text()
    assert words.split() == list(published.WORDS)
    assert spec["split_by"] == {"column": "split"}


def test_a_sample_of_webdataset_is_one_json(small: Dataset, tmp_path: Path) -> None:
    export(small, "webdataset", tmp_path / "to", split="test")
    with tarfile.open(tmp_path / "to/data/test-00000-of-00002.tar") as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    first = next(read_records(small, "test"))
    row = json.loads(members["00000000.json"])
    assert (row["key"], row["label"]) == (first.key, first.values["label"])


def test_an_unknown_format_is_refused(small: Dataset, tmp_path: Path) -> None:
    with raises(ExportError, "'parket'", "did you mean `parquet`", "webdataset"):
        export(small, "parket", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_nothing_is_written_over_and_nothing_by_half(tmp_path: Path) -> None:
    dataset = write_small(tmp_path / "small", "label", "note")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").touch()
    with raises(ExportError, tmp_path / "full", "new folder"):
        export(dataset, "parquet", tmp_path / "full")
    with raises(ExportError, "row 'row/", "'note'", "UTF-8"):
        export(dataset, "parquet", tmp_path / "to")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "small"]


def test_an_empty_folder_is_filled(small: Dataset, tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    export(small, "parquet", tmp_path / "to")
    assert (tmp_path / "to/dataset.yaml").is_file()


def test_packed_texts_are_refused(tmp_path: Path) -> None:
    packed = {**published.FEATURES["text"], "packed": 8, "stored": "bytes"}
    spec = {"features": {"text": {"kind": "text", "pack": 8}}}
    published.write_version(tmp_path / "small", features={"text": packed}, label=None, spec=spec)
    with raises(ExportError, "'text'", "`pack`"):
        export(open_dataset(tmp_path / "small"), "parquet", tmp_path / "to")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_original_keeps_its_turn(orientation: int) -> None:
    data = io.BytesIO()
    Image.fromarray(np.arange(60, dtype=np.uint8).reshape(4, 5, 3)).save(data, "JPEG")
    file = image_file(StoredImage(data.getvalue(), image_feature(), orientation))
    assert file is not None
    assert file.suffix == ".jpeg"
    with Image.open(io.BytesIO(file.data)) as image:
        assert image.getexif().get(0x0112, 1) == orientation
        assert image.convert("RGB").tobytes() == Image.open(data).convert("RGB").tobytes()


def test_the_command_says_what_goes_back_otherwise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small(tmp_path / "small", "label", "text")
    assert run("export", tmp_path / "small", tmp_path / "to", "--to", "parquet") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("200 rows in 8 files, ")
    assert "recordmill build" in printed


def test_without_the_train_split_there_is_no_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small(tmp_path / "small", "label", "text")
    assert run("export", tmp_path / "small", tmp_path / "to", "--to", "parquet", "--split", "test") == 0
    assert [path.name for path in (tmp_path / "to").iterdir()] == ["data"]
    assert "recordmill build" not in capsys.readouterr().out


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
    rows, _ = exported(tmp_path / "to")
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
    rows, again = exported(tmp_path / "to")
    assert again["key"] == ["span", "key"]
    assert len({(row["span"], row["key"]) for row in rows}) == done.rows == 2 * len({row["key"] for row in rows})
    assert any("span and key" in note for note in done.notes)


@pytest.mark.parametrize("impute", ["median", 3.0])
def test_a_number_that_equals_the_imputed_one_stays(tmp_path: Path, impute: str | float) -> None:
    options = {"optional": True, "impute": impute, "normalize": "none"}
    export(write_prices(tmp_path / "small", options), "parquet", tmp_path / "to")
    rows, spec = exported(tmp_path / "to")
    assert sorted(row["price"] for row in rows) == [number / 8 for number in range(200)]
    assert spec["features"]["price"] == {"kind": "number", **options}


ANALYSIS = {"version": "v", "graph_sha256": "00" * 32, "label_counts": []}


@pytest.mark.parametrize(
    ("options", "provenance", "why"),
    [
        ({"optional": True, "impute": "median", "normalize": "z_score"}, {}, "missing"),
        ({"normalize": "z_score"}, {"analysis": ANALYSIS}, "other rows"),
        ({"normalize": "z_score"}, {"forgotten": {"learned_of": "v"}}, "other rows"),
    ],
)
def test_numbers_that_would_be_scaled_otherwise_go_back_as_they_are_stored(
    tmp_path: Path, options: dict[str, Any], provenance: dict[str, Any], why: str
) -> None:
    dataset = write_prices(tmp_path / "small", options, provenance=provenance)
    done = export(dataset, "parquet", tmp_path / "to")
    rows, spec = exported(tmp_path / "to")
    assert sorted(row["price"] for row in rows) == [number / 8 for number in range(200)]
    assert spec["features"]["price"] == {"kind": "raw", "type": "float32"}
    assert [note for note in done.notes if note.startswith("price: ") and why in note]


def test_a_stored_number_goes_with_its_indicator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    also_stored(monkeypatch, "price_missing", of="label")
    options = {"optional": True, "indicator": True, "impute": "mean", "normalize": "z_score"}
    export(write_prices(tmp_path / "small", options, provenance={"analysis": ANALYSIS}), "parquet", tmp_path / "to")
    rows, spec = exported(tmp_path / "to")
    assert {(row["price"], row["price_missing"]) for row in rows} == {(number / 8, number % 2) for number in range(200)}
    assert spec["features"]["price_missing"] == {"kind": "raw", "type": "int64"}


def test_names_that_yaml_takes_for_others_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    also_stored(monkeypatch, "no", of="label")
    features = {"no": published.FEATURES["label"]}
    spec = {"splits": {"train": 60.0, "test": 40.0, "on": 0.0}, "features": {"no": {"kind": "category"}}}
    dataset = write_small(tmp_path / "small", features=features, spec=spec, label="no", name="yes")
    export(dataset, "parquet", tmp_path / "to")
    again = load_spec(str(tmp_path / "to/dataset.yaml"))
    assert (again.name, again.label, list(again.splits)) == ("yes", "no", ["train", "test", "on"])


def test_two_features_of_one_column_are_refused(tmp_path: Path) -> None:
    text = {**published.FEATURES["text"], "tokenizer": "characters"}
    features = {"text": text, "text_ids": {"kind": "raw", "stored": "int64"}}
    spec = {"features": {"text": {"kind": "text"}, "text_ids": {"kind": "raw", "type": "int64"}}}
    dataset = write_small(tmp_path / "small", features=features, spec=spec, label=None)
    with raises(ExportError, "'text'", "column 'text_ids'", "rename one"):
        export(dataset, "parquet", tmp_path / "to")


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
    assert file is not None
    assert without_metadata(file.data) == data
    with Image.open(io.BytesIO(file.data)) as image:
        assert (image.getexif()[0x0112], getattr(image, "n_frames", 1)) == (6, count)
        image.load()


def test_exif_of_another_orientation_gives_way() -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    file = image_file(StoredImage(frames("WEBP", 2, exif=exif), image_feature(), 6))
    assert file is not None
    assert file.data.count(b"EXIF") == 2
    with Image.open(io.BytesIO(file.data)) as image:
        assert (image.getexif()[0x0112], image.n_frames) == (6, 2)  # type: ignore[attr-defined]


def test_the_current_folder_is_no_target(small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    monkeypatch.chdir(tmp_path / "here")
    for target in (".", "../here", "../link"):
        with raises(ExportError, f"{target} ", "current folder"):
            export(small, "parquet", Path(target))
    monkeypatch.chdir(tmp_path)
    export(small, "parquet", Path("link"))
    assert (tmp_path / "here/dataset.yaml").is_file()


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


NOT_EXPORTED = {"letters_length"}
"""Stored parts that an export leaves out."""
UNKNOWN_AGAIN = {"maybe"}
"""Names that share several unknown ids, by the hash of a name that is not stored."""
ROUNDED = {"number", "levels", "triple", "gap", "logged"}
"""Numbers whose normalization is undone and done again."""


def stored_rows(dataset: Dataset) -> dict[bytes, tuple[str, dict[str, Any]]]:
    """Gives the split of each row and its stored values, by key."""
    stored = stored_features(read_descriptions(dataset.features), with_key=True)
    rows = {}
    for split, of_split in dataset.manifest.splits.items():
        for shard in of_split.shards:
            with open_records(str(dataset.folder), shard) as records:
                columns = parse(records.read(np.arange(shard.records)), stored)
            for row in range(shard.records):
                values = {name: cell(column, row) for name, column in columns.items()}
                rows[bytes(values.pop(KEY))] = split, values
    return rows


def cell(column: Any, row: int) -> Any:
    value = column.values[column.splits[row] : column.splits[row + 1]] if isinstance(column, Ragged) else column[row]
    if isinstance(value, memoryview):
        return bytes(value)
    return list(map(bytes, value)) if isinstance(value, list) else value.tolist() if hasattr(value, "tolist") else value


def assert_equal_rows(before: Dataset, after: Dataset) -> None:
    old, new = stored_rows(before), stored_rows(after)
    assert old.keys() == new.keys()
    for key, (split, values) in old.items():
        split_again, again = new[key]
        assert split_again == split
        assert values.keys() - again.keys() <= NOT_EXPORTED
        for name in again.keys() & values.keys() - UNKNOWN_AGAIN:
            if name in ROUNDED:
                assert again[name] == pytest.approx(values[name], rel=1e-4, abs=1e-5), (key, name)
            else:
                same = again[name] == values[name] or (isinstance(values[name], float) and math.isnan(values[name]))
                assert same, (key, name, values[name], again[name])


@pytest.mark.nightly
def test_every_kind_goes_out_and_back(every_kind: tuple[Path, Any], tmp_path: Path) -> None:
    dataset = open_dataset(every_kind[0] / "out")
    export(dataset, "parquet", tmp_path / "to")
    build(load_spec(str(tmp_path / "to/dataset.yaml")), str(tmp_path / "out"))
    assert_equal_rows(dataset, open_dataset(tmp_path / "out"))


@pytest.mark.nightly
def test_images_with_words_and_numbers_go_out_and_back_as_webdataset(tmp_path: Path) -> None:
    only = ["image", "text", "captions", "category", "boxes", "gap", "plain", "count", "note", "tags", "label"]
    build(kinds.make(tmp_path / "in", 60, only=only), str(tmp_path / "first"))
    dataset = open_dataset(tmp_path / "first")
    export(dataset, "webdataset", tmp_path / "to")
    build(load_spec(str(tmp_path / "to/dataset.yaml")), str(tmp_path / "out"))
    assert_equal_rows(dataset, open_dataset(tmp_path / "out"))


@pytest.mark.parametrize("stored", ["bytes", "float32", "int64"])
def test_a_value_that_an_adopted_record_lacks_is_a_missing_one(stored: str) -> None:
    assert plain_column("a", stored, many=False).cell(None) is None
