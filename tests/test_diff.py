"""`recordmill diff`: rows by their keys, names and ids, figures; for people and as JSON."""

import json
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.cli import inspect_commands
from recordmill.pipeline.compare.diff import RowChanges, bytes_to_read, changes, compare_rows, diff
from recordmill.pipeline.dataset.manifest import LATEST_FILE, DatasetError, Latest, read_manifest
from recordmill.pipeline.dataset.profile import FILE as PROFILE
from recordmill.pipeline.dataset.profile import FeatureProfile, to_text
from recordmill.pipeline.dataset.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame
from tests.messages import assert_names, raises
from tests.published import VERSION, example, frames, replace_shard, row, write_manifest, write_version

NEXT = "20261121T120000Z-77d0a4b1"
Records = list[bytes]


def two_versions(output: Path, edit: Callable[[Path], None]) -> tuple[Dataset, Dataset]:
    """Publishes a version, and a copy of it that `edit` changes, which is live."""
    before = write_version(output)
    after = before.with_name(NEXT)
    shutil.copytree(before, after)
    write_manifest(after, replace(read_manifest(after), version=NEXT, sequence=2))
    (output / LATEST_FILE).write_text(Latest(NEXT, 2).to_text())
    edit(after)
    return open_dataset(output, VERSION), open_dataset(output)


def rewrite(folder: Path, split: str, number: int, records: Iterable[bytes]) -> None:
    replace_shard(folder, split, number, [frame(record) for record in records])


def records_of(folder: Path, split: str, number: int) -> Records:
    shard = read_manifest(folder).splits[split].shards[number]
    return [framed[HEADER_BYTES:-FOOTER_BYTES] for framed in frames(folder, shard.file)]


def key_of(record: bytes) -> str:
    numbers = {example(row(number)): number for number in range(200)}
    return f"row/{numbers[record]}"


def changed(record: bytes) -> bytes:
    number = int(key_of(record).removeprefix("row/"))
    return example({**row(number), "price": -1.0, "label": 1 - number % 2})


def test_rows_that_are_added_removed_changed_and_moved(tmp_path: Path) -> None:
    keys: dict[str, str] = {}

    def edit(folder: Path) -> None:
        train, test = records_of(folder, "train", 1), records_of(folder, "test", 0)
        keys.update(removed=key_of(train[0]), changed=key_of(train[1]), moved=key_of(train[2]))
        new = example({**row(5), "key": b"new"})
        rewrite(folder, "train", 1, [changed(train[1]), *train[3:], new])
        rewrite(folder, "test", 0, [*test, train[2]])

    before, after = two_versions(tmp_path, edit)
    rows = compare_rows(before, after)
    assert rows == RowChanges(
        1, 1, 1, 1, 197,
        {"added": ["new"]} | {what: [keys[what]] for what in ("removed", "changed", "moved")},
        {"label": 1, "price": 1},
    )  # fmt: skip


def oracle(before: Dataset, after: Dataset) -> tuple[int, ...]:
    """Counts by dictionaries: added, removed, changed, moved, unchanged."""
    old, new = ({key: (split, content) for split, key, content in parsed(dataset)} for dataset in (before, after))
    both = old.keys() & new.keys()
    return (
        len(new.keys() - both),
        len(old.keys() - both),
        sum(old[key][1] != new[key][1] for key in both),
        sum(old[key][0] != new[key][0] for key in both),
        sum(old[key] == new[key] for key in both),
    )


def parsed(dataset: Dataset) -> Iterable[tuple[str, bytes, bytes]]:
    from tensorflow.train import Example

    for split, of_split in dataset.manifest.splits.items():
        for number in range(len(of_split.shards)):
            for record in records_of(Path(str(dataset.folder)), split, number):
                yield split, Example.FromString(record).features.feature["key"].bytes_list.value[0], record


@pytest.mark.parametrize("seed", range(5))
def test_any_changes_are_those_of_plain_dictionaries(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)

    def edit(folder: Path) -> None:
        shards = [("train", number) for number in range(4)] + [("test", 0), ("test", 1)]
        edited: dict[tuple[str, int], Records] = {shard: [] for shard in shards}
        for shard in shards:
            for record in records_of(folder, *shard):
                action = choose.choices(["keep", "remove", "change", "move"], [8, 1, 1, 1])[0]
                if action != "remove":
                    target = choose.choice(shards) if action == "move" else shard
                    edited[target].append(changed(record) if action == "change" else record)
        for number in range(choose.randrange(20)):
            edited[choose.choice(shards)].append(example({**row(number), "key": b"new/%d" % number}))
        for shard, records in edited.items():
            rewrite(folder, *shard, records)

    before, after = two_versions(tmp_path, edit)
    rows = compare_rows(before, after)
    assert (rows.added, rows.removed, rows.changed, rows.moved, rows.unchanged) == oracle(before, after)


def test_a_key_that_stands_in_two_splits_is_two_rows(tmp_path: Path) -> None:
    def edit(folder: Path) -> None:
        rewrite(folder, "test", 0, [*records_of(folder, "test", 0), records_of(folder, "train", 0)[0]])

    rows = compare_rows(*two_versions(tmp_path, edit))
    assert (rows.added, rows.removed, rows.changed, rows.moved, rows.unchanged) == (1, 0, 0, 0, 200)


def test_a_shard_that_came_twice_is_added(tmp_path: Path) -> None:
    def edit(folder: Path) -> None:
        manifest = read_manifest(folder)
        train = manifest.splits["train"]
        again = replace(train.shards[1], file="again", index="again.index")  # a day that was delivered twice
        shutil.copy(folder / train.shards[1].file, folder / again.file)
        shutil.copy(folder / train.shards[1].index, folder / again.index)
        splits = {**manifest.splits, "train": replace(train, shards=(*train.shards, again))}
        write_manifest(folder, replace(manifest, splits=splits))

    before, after = two_versions(tmp_path, edit)
    again = after.manifest.splits["train"].shards[1]
    rows = compare_rows(before, after)
    assert (rows.added, rows.removed, rows.changed, rows.moved, rows.unchanged) == (again.records, 0, 0, 0, 200)
    assert compare_rows(after, before).removed == again.records
    assert bytes_to_read(before, after) == again.bytes


def test_equal_versions_differ_in_nothing_and_their_shards_are_not_read(tmp_path: Path) -> None:
    before, after = two_versions(tmp_path, lambda folder: None)
    for dataset in (before, after):
        for split in dataset.manifest.splits.values():
            for shard in split.shards:
                (Path(str(dataset.folder)) / shard.file).unlink()
    report = diff(before, after)
    assert report.rows == RowChanges(
        unchanged=200, examples=dict.fromkeys(("added", "removed", "changed", "moved"), [])
    )
    first, rows = report.lines()
    assert_names(first, VERSION, NEXT)
    assert_names(rows, "0 added", "0 removed", "0 changed", "0 moved", "200 unchanged")


def test_an_index_that_does_not_fit_is_named(tmp_path: Path) -> None:
    def edit(folder: Path) -> None:
        rewrite(folder, "train", 0, records_of(folder, "train", 0)[1:])
        shard = read_manifest(folder).splits["train"].shards[0]
        (folder / shard.index).write_bytes((folder / shard.index).read_bytes()[:-8])

    versions = two_versions(tmp_path, edit)
    with raises(DatasetError, "train.tfrecord-00000-of-00004", "index", "`recordmill verify`"):
        compare_rows(*versions)


def with_classes(folder: Path, *names: str) -> None:
    manifest = read_manifest(folder)
    label = {**manifest.features["label"], "vocabulary_size": len(names)}
    (folder / label["vocabulary"]).write_text("".join(f"{name}\n" for name in names))
    write_manifest(folder, replace(manifest, features={**manifest.features, "label": label}))


def test_names_that_are_gained_lost_and_moved(tmp_path: Path) -> None:
    report = diff(*two_versions(tmp_path, lambda folder: with_classes(folder, "bright", "cat")), rows=False)
    names = report.names["label"]
    assert (names.gained, names.lost, names.moved) == (1, 1, 1)
    assert names.names == {"gained": ["cat"], "lost": ["dark"], "moved": ["bright"]}
    (line,) = (line for line in report.lines() if line.startswith("label: "))
    assert_names(line, "1 gained (cat)", "1 lost (dark)", "1 moved (bright)")


def with_profile(folder: Path, ones: int) -> None:
    profile = FeatureProfile(200, ids={0: 200 - ones, 1: ones}, tokens=200)
    (folder / PROFILE).parent.mkdir(exist_ok=True)
    (folder / PROFILE).write_text(to_text({"train": {"label": profile}}))


def test_values_that_moved_are_figures(tmp_path: Path) -> None:
    before, after = two_versions(tmp_path, lambda folder: with_profile(folder, 150))
    with_profile(Path(str(before.folder)), 100)
    report = diff(before, after, rows=False)
    figures = [(figure.rule, figure.subject) for figure in report.values]
    assert figures == [("jensen_shannon", "label (train)"), ("l_infinity", "label (train)")]
    (line,) = (line for line in report.lines() if "l_infinity" in line)
    assert_names(line, "label (train)", 0.25, "'bright' 50.00% → 75.00%")
    assert json.loads(json.dumps(report.to_json()))["values"][1]["figure"] == 0.25


def test_the_words_of_a_text_are_counted_and_never_shown(tmp_path: Path) -> None:
    def edit(folder: Path) -> None:
        (folder / "transform_fn/assets/text.vocabulary.txt").write_text("a\nsecret\nüber\n")

    report = diff(*two_versions(tmp_path, edit), rows=False)
    assert (report.names["text"].gained, report.names["text"].lost, report.names["text"].moved) == (1, 1, 0)
    assert "secret" not in json.dumps(report.to_json())


def test_changed_leaves_have_paths() -> None:
    before: dict[str, Any] = {"image": {"mean": [0.1, 0.2], "images": 3}, "same": [1, {"x": None}]}
    after = {"image": {"mean": [0.1, 0.3], "images": 3}, "same": [1, {"x": None}], "new": True}
    assert changes(before, after) == {"image.mean.1": (0.2, 0.3), "new": (None, True)}


def test_the_command_compares_with_the_version_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def edit(folder: Path) -> None:
        rewrite(folder, "train", 0, records_of(folder, "train", 0)[1:])
        manifest = read_manifest(folder)
        write_manifest(folder, replace(manifest, rows={**manifest.rows, "written": 199}))

    two_versions(tmp_path, edit)
    inspect_commands.diff(str(tmp_path))
    lines = capsys.readouterr().out.splitlines()
    assert_names(lines[0], VERSION, NEXT)
    assert_names(lines[1], "1 removed (row/")
    assert_names("\n".join(lines), "written: 200 → 199")
    inspect_commands.diff(str(tmp_path), before=NEXT, after=VERSION, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert (report["before"], report["after"], report["rows"]["added"]) == (NEXT, VERSION, 1)
    assert report["counts"] == {"written": [199, 200]}


def test_a_first_version_has_none_before_it(tmp_path: Path) -> None:
    write_version(tmp_path)
    with raises(DatasetError, tmp_path, "before", VERSION):
        inspect_commands.diff(str(tmp_path))
