"""An adopted version as a source: its records, keys and splits, without rejected and forgotten ones."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest

from recordmill import open_dataset
from recordmill.pipeline.adopt.adopt import Adoption, adopt_files
from recordmill.pipeline.build.build import build
from recordmill.pipeline.dataset.tfrecord import FRAME_BYTES, frame
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.forget import forget
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import LocalFiles, StoreFiles
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.options import Adopted
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.stores.base import OutputError
from tests.emulators import s3
from tests.messages import raises
from tests.pictures import photo, saved
from tests.tables import CATEGORY, FILES, IMAGE, INTEGER, read
from tests.test_tfrecord_source import example

SPLITS = {"train": range(6), "validation": range(6, 9)}
ASKED = {"id": INTEGER, "split": replace(CATEGORY, optional=True)}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Two files of six and three records; the third record of the first is damaged."""
    (tmp_path / "old").mkdir()
    for split, ids in SPLITS.items():
        records = [
            example(id=id_, name=f"n{id_}".encode(), image=saved(np.asarray(photo(id_, (16, 12))))) for id_ in ids
        ]
        data = bytearray(b"".join(map(frame, records)))
        if split == "train":
            data[sum(len(record) + FRAME_BYTES for record in records[:2]) + 20] ^= 1
        (tmp_path / f"old/x-{split}.tfrecord").write_bytes(data)
    return tmp_path


def adopted(folder: Path, **options: Any) -> str:
    output = str(folder / "out/x")
    adopt_files(Adoption({"": [f"{folder}/old/*.tfrecord"]}, output, max_share=1, **options))
    return output


def source(output: str, **options: Any) -> SourceReader[Any]:
    return reader_of(Adopted(format="adopted", path=output, **options))


@pytest.mark.parametrize("chunk_bytes", [1, 200, 1 << 20])
def test_the_rows_are_the_records_with_their_keys_and_splits(old: Path, chunk_bytes: int) -> None:
    found = read(source(adopted(old)), ASKED, chunk_bytes)
    assert [(row["id"], row["split"]) for row in found.rows] == [
        (id_, split) for split, ids in SPLITS.items() for id_ in ids if id_ != 2
    ]
    keys = [b"x-train.tfrecord:%d" % id_ for id_ in (0, 1, 3, 4, 5)]
    assert found.keys == [*keys, *(b"x-validation.tfrecord:%d" % id_ for id_ in range(3))]
    assert (found.plan.rows, found.rejects, found.plan.notes[:1]) == (8, [], ["unused columns: image, name"])


def test_files_that_splits_share_are_read_once(old: Path) -> None:
    output = adopted(old, splits={"train": 50.0, "test": 50.0}, key="name")
    found = read(source(output), ASKED)
    assert len(found.plan.chunks) == 2
    for split in ("train", "test"):
        batches = open_dataset(output).evaluation_input(split, batch_size=2, with_key=True)
        expected = {bytes(key) for batch in batches for key in batch["key"]}
        rows = zip(found.rows, found.keys, strict=True)
        assert {key for row, key in rows if row["split"] == split} == expected


def test_forgotten_records_are_no_rows_and_a_new_input(old: Path) -> None:
    reader = source(output := adopted(old))
    before = reader.plan(FILES, ASKED, 1).inputs
    forget(output, [b"x-train.tfrecord:4"])
    found = read(reader, ASKED)
    assert [row["id"] for row in found.rows] == [0, 1, 3, 5, 6, 7, 8]
    assert [b.tag != a.tag for b, a in zip(before, found.plan.inputs, strict=True)] == [True, False]


def test_splits_that_nothing_keeps_are_said(old: Path) -> None:
    output = adopted(old)
    notes = source(output).plan(FILES, {"id": INTEGER}, 1).notes
    assert "`split_by: {column: split}` keeps the splits" in " ".join(notes)
    assert "split_by" not in " ".join(source(output, split="train").plan(FILES, {"id": INTEGER}, 1).notes)


SPEC = """
name: y
source: {{format: adopted, path: {output}}}
split_by: {{column: split}}
splits: {{train: 80, validation: 20}}
features:
  image: {{kind: image, size: [8, 8]}}
  id: {{kind: number}}
"""


@pytest.mark.slow
def test_a_build_of_an_adopted_dataset(old: Path) -> None:
    spec = parse_spec(SPEC.format(output=adopted(old)))
    built = build(spec, str(old / "out/y"))
    assert {name: split.records for name, split in built.manifest.splits.items()} == {"train": 5, "validation": 3}
    assert built.manifest.rows["rejected"] == 0
    assert not build(spec, str(old / "out/y")).is_new
    with raises(OutputError, "holds adopted files", "give another"):
        build(parse_spec(SPEC.format(output=old / "out/x").replace("name: y", "name: x")), str(old / "out/x"))
    with raises(SourceError, f"{old}/out/y holds a built dataset", "give that build's sources"):
        source(str(old / "out/y")).plan(FILES, ASKED, 1)


def test_a_version_names_no_file_that_its_reader_did_not_allow(old: Path) -> None:
    output = adopted(old)
    shutil.copytree(output, old / "copy")
    with raises(DatasetError, f"{old}/copy", "outside its dataset", "adopt them again"):
        source(str(old / "copy")).plan(FILES, ASKED, 1)


def test_files_that_changed_or_are_gone_are_named(old: Path) -> None:
    output, file = adopted(old), old / "old/x-train.tfrecord"
    file.write_bytes(file.read_bytes()[:-1])
    with raises(SourceError, file, "another size", "adopt the files again"):
        source(output).plan(FILES, ASKED, 1)
    file.unlink()
    with raises(SourceError, file, "No such file"):
        source(output).plan(FILES, ASKED, 1)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["beside", pytest.param("around", marks=pytest.mark.nightly), "local"])
def test_files_in_a_bucket(old: Path, place: str) -> None:
    with s3() as url:
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        for file in (old / "old").iterdir():
            boto3.client("s3").upload_file(str(file), bucket, f"{prefix}/old/{file.name}")
        output = {"beside": f"{url}/out", "around": url, "local": str(old / "out/of_bucket")}[place]
        adopt_files(Adoption({"": [f"{url}/old/*.tfrecord"]}, output, max_share=1, name="x"))
        expected = read(source(adopted(old)), ASKED)
        found = read(source(output), ASKED, files=StoreFiles(LocalFiles()))
        assert (found.rows, found.keys) == (expected.rows, expected.keys)
        if place != "beside":  # a build reads as above, wherever the version lies
            return
        built = build(parse_spec(SPEC.format(output=output)), str(old / "out/y")).manifest
        assert {name: split.records for name, split in built.splits.items()} == {"train": 5, "validation": 3}


def test_workers_need_no_version(old: Path) -> None:
    reader, columns = source(output := adopted(old)), {"id": INTEGER, "image": IMAGE}
    chunks = reader.plan(FILES, columns, 1).chunks
    shutil.rmtree(output)
    blocks = [block for chunk in chunks for block in reader.read(chunk, FILES, columns, None)]
    assert sum(block.table.num_rows for block in blocks) == 8


def test_a_file_of_damaged_records_ends_no_plan(old: Path) -> None:
    file = old / "old/x-train.tfrecord"
    data, offset = bytearray(file.read_bytes()), 0
    while offset < len(data):
        data[offset + 20] ^= 4
        offset += int.from_bytes(data[offset : offset + 8], "little") + FRAME_BYTES
    file.write_bytes(data)
    assert [row["id"] for row in read(source(adopted(old)), ASKED).rows] == [6, 7, 8]
