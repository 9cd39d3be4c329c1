"""Builds of data with planted duplicates: counted, in one split, left out, refused; the same bytes however they run."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordmill import open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.duplicates.find import DuplicatesError
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.cli.screen import Screen
from recordmill.pipeline.cli.show import print_published
from recordmill.pipeline.spec.model import Spec, parse_spec
from recordmill.pipeline.versions.publishing import Published
from tests.messages import assert_names, raises
from tests.opened import opened
from tests.pictures import photo, saved
from tests.tables import write_jsonl

EQUAL = {f"equal{number:02}.png": f"p{number:02}.png" for number in range(8)}
NEAR = {f"near{number:02}.jpg": f"p{number:02}.png" for number in range(6, 18)}
IMAGES = """
name: photos
source: {{format: image_folder, path: {folder}}}
duplicates: {{action: {action}, near: true}}
splits: {{train: 50, validation: 25, test: 25}}
features: {{image: {{kind: image, store: original}}}}
"""
TEXTS = """
name: texts
source: {{format: jsonl, path: {folder}}}
key: id
duplicates: {action}
label: label
rejects: {{max_share: null}}
features:
  text: {{kind: text, vocabulary: 20}}
  label: {{kind: category}}
"""
ROWS = [{"id": f"k{number}", "text": f"some text {number % 40}", "label": "abc"[number % 3]} for number in range(90)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(40):
        (folder / f"p{number:02}.png").write_bytes(saved(photo(number), "PNG"))
    for copy, original in EQUAL.items():
        (folder / copy).write_bytes((folder / original).read_bytes())
    for copy, original in NEAR.items():
        smaller = photo(int(original[1:3])).resize((120, 90))
        (folder / copy).write_bytes(saved(smaller, "JPEG", quality=90))
    return folder


@pytest.fixture(scope="module")
def kept(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Published, dict[str, str]]:
    """What `keep` publishes, and the split of each key."""
    return _build_photos(photos, tmp_path_factory.mktemp("kept"), "keep")


def _build_photos(photos: Path, output: Path, action: str) -> tuple[Published, dict[str, str]]:
    published = build(parse_spec(IMAGES.format(folder=photos, action=action)), str(output))
    return published, _splits(published, str(output))


def _splits(published: Published, output: str) -> dict[str, str]:
    dataset, found = open_dataset(output), {}
    for split, of in published.manifest.splits.items():
        batches = dataset.evaluation_input(split=split, batch_size=16, with_key=True).as_numpy() if of.records else ()
        rows = (batch[0] if isinstance(batch, tuple) else batch for batch in batches)  # a pair where there is a label
        found |= {key.decode(): split for features in rows for key in features["key"] if key}
    return found


def _straddling(splits: dict[str, str], copies: dict[str, str]) -> int:
    return sum(splits[copy] != splits[original] for copy, original in copies.items())


def test_planted_duplicates_are_in_one_split(
    photos: Path, kept: tuple[Published, dict[str, str]], tmp_path: Path
) -> None:
    published, splits = _build_photos(photos, tmp_path, "same_split")
    before = kept[1]
    assert _straddling(before, EQUAL) > 0
    assert _straddling(before, NEAR) > 0
    assert _straddling(splits, EQUAL | NEAR) == 0
    alone = splits.keys() - {*EQUAL, *EQUAL.values(), *NEAR, *NEAR.values()}
    assert {name: splits[name] for name in alone} == {name: before[name] for name in alone}
    found = published.manifest.duplicates
    assert (found["exact"]["groups"], found["exact"]["rows"], found["exact"]["across"]) == (8, 8, {})
    assert (found["near"]["groups"], found["near"]["rows"], found["near"]["across"]) == (18, 20, {})


def test_keep_counts_what_straddles(kept: tuple[Published, dict[str, str]]) -> None:
    published, splits = kept
    found = published.manifest.duplicates
    assert (found["action"], found["content"], found["near"]["distance"]) == ("keep", ["image"], 6)
    assert (found["exact"]["groups"], found["exact"]["rows"]) == (8, 8)
    assert (found["near"]["groups"], found["near"]["rows"]) == (18, 20)
    across = sum(count for later in found["exact"]["across"].values() for count in later.values())
    assert across == _straddling(splits, EQUAL)
    assert sum(found["exact"]["within"].values()) == len(EQUAL) - across
    file = io.StringIO()
    print_published(Screen(file=file, width=200), replace(published, is_new=True), 1.0)
    (other,) = found["exact"]["across"]
    lines = [line for line in file.getvalue().splitlines() if " of test " in line and other in line]
    assert len(lines) == 2, "rows equal to some of another split, and rows that look like some"


@pytest.mark.nightly
def test_what_looks_alike_is_dropped(photos: Path, tmp_path: Path) -> None:
    published, splits = _build_photos(photos, tmp_path, "drop")
    assert published.manifest.rows == {"read": 60, "written": 40, "rejected": 0, "duplicates": 20}
    originals = [EQUAL.get(name) or NEAR.get(name) or name for name in splits]
    assert sorted(originals) == [f"p{number:02}.png" for number in range(40)]
    assert published.manifest.duplicates["near"]["groups"] == published.manifest.duplicates["exact"]["groups"] == 0


def _texts(folder: Path, rows: list[dict[str, Any]], action: str) -> Spec:
    inputs = folder / "in"
    inputs.mkdir(parents=True)
    for name, part in (("a", rows[:30]), ("b", rows[30:])):
        write_jsonl(inputs / f"{name}.jsonl", part)
    return parse_spec(TEXTS.format(folder=inputs, action=action))


def _build_texts(folder: Path, rows: list[dict[str, Any]], action: str, *beam_options: str) -> Published:
    options = RunOptions(beam_options=beam_options, chunk_bytes=1000)
    return build(_texts(folder, rows, action), str(folder / "out"), options)


def _shards(published: Published) -> dict[str, str]:
    return {shard.file: shard.sha256 for split in published.manifest.splits.values() for shard in split.shards}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("action", ["drop", pytest.param("same_split", marks=pytest.mark.nightly)])
def test_the_bytes_do_not_depend_on_order_chunks_or_repeats(tmp_path: Path, action: str) -> None:
    one = _build_texts(tmp_path / "one", ROWS, action)
    other = _build_texts(tmp_path / "other", ROWS[::-1], action, "--direct_runner_bundle_repeat=1")
    assert _shards(one) == _shards(other)
    assert one.manifest.statistics == other.manifest.statistics
    left_out = 50 if action == "drop" else 0
    assert one.manifest.rows == {"read": 90, "written": 90 - left_out, "rejected": 0, "duplicates": left_out}
    assert [source["duplicates"] for source in one.manifest.sources] == [left_out]
    words = one.manifest.statistics["text"]
    assert words["tokens"] == 3 * one.manifest.splits["train"].records  # no word of what was left out
    assert one.manifest.duplicates["exact"]["across"] == {}
    assert one.manifest.duplicates["exact"]["rows"] == 50 - left_out


@pytest.mark.nightly
def test_classes_are_cut_by_the_read_that_finds_duplicates(tmp_path: Path) -> None:
    """Rows that are left out count for no class, and the sources are opened as often as without `stratify`."""
    stratify = "\nsplit_by: {stratify: label}"
    times, published = list[int](), list[Published]()
    for action in ("drop", f"drop{stratify}"):
        folder = tmp_path / str(len(action))
        with opened() as paths:
            published.append(_build_texts(folder, ROWS, action))
        times.append(sum("/in/" in path for path in paths))
    assert times[0] == times[1] > 0
    left = {*_splits(published[1], str(folder / "out"))}
    clean = _build_texts(tmp_path / "clean", [row for row in ROWS if row["id"] in left], f"keep{stratify}")
    assert len(left) == 40
    assert _shards(published[1]) == _shards(clean) != _shards(published[0])


@pytest.mark.slow
def test_fail_publishes_nothing(tmp_path: Path) -> None:
    with raises(DuplicatesError, "50 rows", "40 groups", "7 rows of ", "\n  'k1' of a.jsonl and 'k81' of b.jsonl\n"):
        _build_texts(tmp_path, ROWS, "fail")
    assert not (tmp_path / "out" / "versions").exists()
    assert not (tmp_path / "out" / "LATEST").exists()
    published = _build_texts(tmp_path / "clean", ROWS[:40], "fail")
    assert published.manifest.rows["written"] == 40


@pytest.mark.nightly
def test_a_build_that_goes_on_counts_the_same(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("the power is out")

    spec, output, notes = _texts(tmp_path, ROWS, "same_split"), str(tmp_path / "out"), list[str]()
    with raises(RuntimeError, "the power is out"):
        build(spec, output, listener=Listener(on_publish=fail))
    found = build(spec, output, listener=Listener(on_note=notes.append)).manifest
    (note,) = notes
    assert_names(note, "earlier build", "graph", "3 of 3 shards")
    assert found.duplicates["exact"]["rows"] == 50
    assert found.duplicates["exact"]["across"] == {}
    assert found.rows == {"read": 90, "written": 90, "rejected": 0, "duplicates": 0}
