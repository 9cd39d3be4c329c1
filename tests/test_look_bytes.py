"""A look at rows that will be read again skips images' bytes if the format allows it, and finds the same."""

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.summaries.look import learned
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.spec.model import parse_spec
from tests.looks import look_at, planned_look
from tests.pictures import saved
from tests.tables import tar, write
from tests.test_same_bytes import LOOPBACK

SPEC = """
name: looked
source: {format: FORMAT, path: FOLDER}
key: KEY
splits: {train: 100}
rejects: {max_share: 1}
features:
  image: {kind: image, column: jpg, size: [8, 8]}
  text: {kind: text, column: txt, vocabulary: 100}
"""
RANDOM = np.random.default_rng(13)
IMAGES = [saved(RANDOM.integers(0, 256, (160, 160, 3), np.uint8)) for _ in range(60)]  # 16 KB each
BYTES = sum(map(len, IMAGES))
PATH, OUTSIDE = {"bytes": b"", "path": "a.jpg"}, {"bytes": b"", "path": "../a.jpg"}
NOTHING, NULL = {"bytes": b"", "path": None}, {"bytes": None, "path": None}


def inside(image: bytes) -> dict[str, Any]:
    """Makes a cell in the form of Hugging Face's datasets."""
    return {"bytes": image, "path": "0001.jpg"}


class CountingFiles(LocalFiles):
    """Local files that count the bytes read."""

    def __init__(self) -> None:
        self.read = 0

    def open(self, path: str) -> BinaryIO:
        return io.BufferedReader(CountingFile(path, self), 4096)


class CountingFile(io.FileIO):
    """A file that counts the bytes read."""

    def __init__(self, path: str, counter: CountingFiles) -> None:
        super().__init__(path)
        self._counter = counter

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self._counter.read += count
        return count


def words(row: int) -> str:
    return f"word{row % 7} and word{row % 5}"


def write_parquet(folder: Path, images: Any = IMAGES) -> None:
    images = pa.array(images)
    rows = range(len(images))
    table = pa.table({"id": [f"row-{row}" for row in rows], "jpg": images, "txt": [words(row) for row in rows]})
    pq.write_table(table, folder / "a.parquet", row_group_size=20, use_dictionary=False)


def write_tar(folder: Path) -> None:
    members = (
        (f"{n:04d}.{end}", data) for n, image in enumerate(IMAGES) for end, data in (("jpg", image), ("txt", words(n)))
    )
    write(folder / "a.tar", tar(*members))


def looked(folder: Path, *, again: bool, spec: str = SPEC, key: str = "id") -> tuple[Any, int]:
    """Returns a look's results and the bytes read; `again`: rows will be read again for writing."""
    form = "parquet" if list(folder.glob("*.parquet")) else "webdataset"
    spec = spec.replace("FORMAT", form).replace("FOLDER", str(folder)).replace("KEY", key)
    files = CountingFiles()
    look, chunks = planned_look(folder / f"again-{again}-{len(key)}", spec, 1 << 16, files, inline=again)
    files.read = 0
    return learned(look, look_at(look, chunks)), files.read


@pytest.mark.parametrize(("form", "key"), [("parquet", "id"), ("webdataset", "__key__")])
def test_images_are_passed_over(form: str, key: str, tmp_path: Path) -> None:
    (write_parquet if form == "parquet" else write_tar)(tmp_path)
    first, whole = looked(tmp_path, again=False, key=key)
    second, read = looked(tmp_path, again=True, key=key)
    assert first == second
    assert sum(second.rows.values()) == len(IMAGES)
    assert whole >= BYTES * (form == "parquet")  # of a tar, places alone
    assert read < BYTES / 2


@pytest.mark.parametrize(("images", "skips"), [
    (IMAGES, True),
    ([inside(image) for image in IMAGES], True),
    ([b"", *IMAGES[1:]], True),
    ([NOTHING, PATH, *(inside(image) for image in IMAGES[2:])], True),
    ([None, *IMAGES[1:20], None, *IMAGES[21:40], None, *IMAGES[41:]], False),
    ([OUTSIDE, *(inside(image) for image in IMAGES[1:])], True),
    ([{"bytes": None, "path": "../a.jpg"}, *(inside(image) for image in IMAGES[1:])], True),
])  # fmt: skip
def test_rows_that_lack_their_image_count_for_nothing_in_both_reads(images: Any, skips: bool, tmp_path: Path) -> None:
    write_parquet(tmp_path, images)
    first, _ = looked(tmp_path, again=False)
    second, read = looked(tmp_path, again=True)
    assert first == second
    assert (read < 0.7 * BYTES) == skips  # two row groups of three may be passed over, and footers are read


def test_images_that_the_look_measures_or_a_key_is_made_of_are_read(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    spec = SPEC.replace("8]}", "8], normalize: dataset}")
    first, _ = looked(tmp_path, again=False, spec=spec)
    second, read = looked(tmp_path, again=True, spec=spec)
    assert first == second
    assert first.statistics["image"]["images"]
    assert read >= BYTES
    for key in ("jpg", "{content: jpg}"):
        _, read = looked(tmp_path, again=True, key=key)
        assert read >= BYTES


@pytest.mark.nightly
@pytest.mark.slow
def test_a_build_that_passes_over_images_has_the_bytes_of_the_local_one(tmp_path: Path) -> None:
    write_parquet(tmp_path, [NULL, NOTHING, PATH, OUTSIDE, *(inside(image) for image in IMAGES[4:])])
    (tmp_path / "a.jpg").write_bytes(IMAGES[1])
    spec = parse_spec(SPEC.replace("FORMAT", "parquet").replace("FOLDER", str(tmp_path)).replace("KEY", "id"))
    local = build(spec, str(tmp_path / "local")).manifest
    far = build(spec, str(tmp_path / "far"), RunOptions(runner="PortableRunner", beam_options=LOOPBACK)).manifest
    assert (local.splits, local.statistics, local.rows) == (far.splits, far.statistics, far.rows)
    assert local.rejects["by_reason"] == far.rejects["by_reason"] == {"missing_value": 3}
    assert local.statistics["text"]["tokens"] == 3 * (len(IMAGES) - 1)  # all but the null one
