"""`recordmill verify --repair` and the comparison of raw rows with their records: on a version of a real build."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipeline.build.build import build
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.dataset.tfrecord import frame
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.verify.parity import with_parity
from recordmill.pipeline.verify.repair import repair, repaired
from recordmill.pipeline.verify.report import Verification
from recordmill.pipeline.verify.verify import NO_PARITY, verify
from recordmill.pipeline.versions.leases import hold
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import published
from tests.messages import assert_names
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
SHARD, INDEX = "tiny-train.tfrecord-00002-of-00004", "tiny-train.index-00002-of-00004"


def write_rows(folder: Path) -> None:
    folder.mkdir()
    random = np.random.default_rng(1)
    for number in range(5):
        Image.fromarray(random.integers(0, 256, (9, 11, 3), np.uint8)).save(folder / f"{number}.png")
    rows = [
        {
            "id": f"row-{row}",
            "image": f"{row % 5}.png",
            "text": " ".join(["red", "green", "blue"][: row % 4]),
            "price": row / 7,
            "levels": [row / 3] * (row % 3),
            "label": "ab"[row % 2],
        }
        for row in range(ROWS)
    ]
    rows[7]["price"] = "none"  # a reject
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


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def mend(folder: Path, spec: Spec | None) -> Verification:
    return repaired(verify(str(folder)), spec)


@pytest.mark.slow
def test_damaged_and_missing_shards_come_back_byte_for_byte(folder: Path, once: tuple[Path, Path, Spec]) -> None:
    before = contents(folder)
    shards = read_manifest(folder).splits["test"].shards
    (empty, *_) = (shard for shard in shards if not shard.records)
    flip(folder / SHARD)
    for name in (empty.file, empty.index, "tiny-train.index-00000-of-00004", "tiny-train.tfrecord-00001-of-00004"):
        (folder / name).unlink()
    report = mend(folder, once[2])
    assert (report.is_whole, report.unrepaired) == (True, ())
    assert len(report.repaired) == 7  # three shards with their indexes, and an index
    assert contents(folder) == before
    assert sorted(os.listdir(folder.parents[1])) == ["LATEST", "history.jsonl", "versions"]


def test_of_changed_sources_nothing_is_replaced(once: tuple[Path, Path, Spec], tmp_path: Path) -> None:
    write_rows(tmp_path / "in")
    Image.new("RGB", (11, 9)).save(tmp_path / "in" / "0.png")
    spec = parse_spec(SPEC.format(folder=tmp_path / "in"))
    shutil.copytree(once[1], tmp_path / "out")
    (folder,) = (tmp_path / "out" / "versions").iterdir()
    flip(folder / SHARD)
    damaged = contents(folder)
    report = with_parity(repaired(verify(str(folder)), spec), spec, rows=9)
    (reason,) = report.unrepaired
    assert_names(reason, "inputs", folder.name)
    assert contents(folder) == damaged
    (unchecked,) = report.findings.unchecked
    assert_names(unchecked, "training = serving", "inputs")


@pytest.mark.nightly
@pytest.mark.slow
def test_a_shard_that_comes_out_otherwise_is_not_taken(folder: Path, once: tuple[Path, Path, Spec]) -> None:
    """The manifest says that other bytes were there."""
    written = published.frames(folder, SHARD)
    published.replace_shard(folder, "train", 2, written[:-1])
    flip(folder / SHARD)
    damaged = contents(folder)
    report = mend(folder, once[2])
    assert_names(report.unrepaired[-1], SHARD, "bytes, expected")
    assert contents(folder) == damaged


@pytest.mark.slow
def test_a_shard_is_not_built_with_a_damaged_graph(folder: Path, once: tuple[Path, Path, Spec]) -> None:
    flip(folder / SHARD)
    flip(folder / "transform_fn/saved_model.pb")
    report = mend(folder, once[2])
    assert_names(report.unrepaired[0], "transform_fn/saved_model.pb: ", "build again")
    assert_names(report.unrepaired[1], "graph", "transform_fn/saved_model.pb: ", "SHA-256")


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


def test_an_index_needs_no_sources(tmp_path: Path) -> None:
    folder = published.write_version(tmp_path)
    before = contents(folder)
    flip(folder / "small-train.index-00001-of-00004")
    (folder / "small-test.index-00000-of-00002").unlink()
    report = mend(folder, None)
    assert (report.is_whole, len(report.repaired)) == (True, 2)
    assert contents(folder) == before


def test_without_a_spec_a_shard_stays_as_it_is(tmp_path: Path) -> None:
    folder = published.write_version(tmp_path)
    flip(folder / "small-train.tfrecord-00001-of-00004")
    flip(folder / "serving/saved_model.pb")
    report = mend(folder, None)
    model, shard = report.unrepaired
    assert_names(model, "serving/saved_model.pb: ", "build again")
    assert_names(shard, "small-train.tfrecord-00001-of-00004", "--spec dataset.yaml")
    assert not report.is_whole


def test_nothing_is_repaired_beside_another_process(tmp_path: Path) -> None:
    folder = published.write_version(tmp_path)
    (folder / "small-test.index-00000-of-00002").unlink()
    manifest = read_manifest(folder)
    with hold(open_store(str(tmp_path)), manifest.version):
        done = repair(folder, manifest, verify(str(folder)).findings, None)
    assert not done.files
    assert_names(done.reasons[0], f"process {os.getpid()} on", "try again")


def test_a_copied_version_is_repaired_where_it_was_published(tmp_path: Path) -> None:
    folder = published.write_version(tmp_path)
    folder = folder.rename(tmp_path / "copy")
    (folder / "small-test.index-00000-of-00002").unlink()
    assert_names(mend(folder, None).unrepaired[0], folder, "versions/", "published")


@pytest.mark.nightly
def test_the_command_says_what_it_repaired_and_nothing_else(tmp_path: Path) -> None:
    """Beam and TensorFlow, which it loads, are not heard."""
    folder = published.write_version(tmp_path)
    (folder / "small-test.index-00000-of-00002").unlink()
    run = [sys.executable, "-m", "recordmill", "verify", str(tmp_path), "--repair"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=200, check=False)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("checked ")]
    assert (done.returncode, done.stderr) == (0, "")
    assert lines[:2] == [f"not checked: {NO_PARITY}", "repaired: small-test.index-00000-of-00002"]
    (verdict,) = lines[2:]
    assert verdict.startswith(f"small {published.VERSION}: ")
