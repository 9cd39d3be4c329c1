"""The comparison of raw rows with their records: on a version of a real build."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipeline.build.build import build
from recordmill.pipeline.dataset.tfrecord import frame
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.verify.parity import with_parity
from recordmill.pipeline.verify.verify import verify
from tests import published
from tests.tables import write_jsonl

ROWS = 60
SPEC = """
name: tiny
source: {{format: jsonl, path: {folder}}}
key: id
splits: {{train: 70, test: 30}}
shards: {{train: 4, test: 32}}
label: label
rejects: {{max_share: 1}}
features:
  image: {{kind: image, size: 6}}
  original: {{kind: image, column: image, size: 6, store: original}}
  text: {{kind: text}}
  price: {{kind: number}}
  levels: {{kind: numbers}}
  label: {{kind: category}}
"""
SHARD = "tiny-train.tfrecord-00002-of-00004"


def write_rows(folder: Path) -> None:
    folder.mkdir()
    random = np.random.default_rng(1)
    for number in range(5):
        Image.fromarray(random.integers(0, 256, (9, 11, 3), np.uint8)).save(folder / f"{number}.png")
    rows: list[dict[str, object]] = []
    for row in range(ROWS):
        text, price = " ".join(["red", "green", "blue"][: row % 4]), row / 7 if row != 7 else "none"  # a reject
        rest = {"text": text, "price": price, "levels": [row / 3] * (row % 3), "label": "ab"[row % 2]}
        rows.append({"id": f"row-{row}", "image": f"{row % 5}.png", **rest})
    write_jsonl(folder / "rows.jsonl", rows)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Spec]:
    """The inputs, the dataset and the spec; not to be changed."""
    base = tmp_path_factory.mktemp("tiny")
    write_rows(base / "in")
    spec = parse_spec(SPEC.format(folder=base / "in"))
    build(spec, str(base / "out"))
    return base / "in", base / "out", spec


@pytest.fixture
def folder(once: tuple[Path, Path, Spec], tmp_path: Path) -> Path:
    """A copy of the version in another dataset."""
    shutil.copytree(once[1], tmp_path / "out")
    (version,) = (tmp_path / "out" / "versions").iterdir()
    return version


@pytest.mark.nightly
@pytest.mark.slow
def test_raw_rows_are_served_as_their_records_are_read(folder: Path, once: tuple[Path, Path, Spec]) -> None:
    report = with_parity(verify(str(folder)), once[2], rows=1000)
    assert (report.findings.problems, report.findings.unchecked) == ([], [])
    assert report.findings.checked["rows"] == ROWS - 1  # without the reject
    again = with_parity(verify(str(folder)), once[2], rows=16)
    assert again.findings.checked["rows"] == 16


def change_price(written: list[bytes]) -> None:
    example = tf.train.Example.FromString(written[1][12:-4])
    example.features.feature["price"].float_list.value[0] += 1e-6
    written[1] = frame(example.SerializeToString(deterministic=True))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (change_price, (f"{SHARD}, record 1 at byte", "'price'", "serving model")),
        (list.pop, ("dataset.json: ", "'row-", "rejected")),
    ],
)
def test_a_record_that_is_not_its_raw_row_is_found(
    change: Callable[[list[bytes]], None], facts: tuple[str, ...], folder: Path, once: tuple[Path, Path, Spec]
) -> None:
    """Everything else agrees with the changed record, its digest too."""
    written = published.frames(folder, SHARD)
    change(written)
    published.replace_shard(folder, "train", 2, written)
    report = with_parity(verify(str(folder)), once[2], rows=1000)
    found = report.findings.problems
    assert any(all(fact in str(problem) for fact in facts) for problem in found), found
