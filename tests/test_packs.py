"""Packed rows: an index over records, whose rows hold every id once; several lengths share the records."""

import json
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill import Dataset, DatasetError, Input, mix, open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset import tfrecord
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.dataset.manifest_parts import Pack, PackFile
from recordmill.pipeline.dataset.tfrecord import PackIndex, pack
from recordmill.pipeline.forget import forget
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.yaml_document import SpecError
from tests import published
from tests.memory_store import memory_store
from tests.messages import assert_names, raises
from tests.tables import write_jsonl

LENGTHS = st.lists(st.integers(0, 20), max_size=60)


def pieces(index: PackIndex) -> list[list[tuple[int, int, int]]]:
    """The (record, first id, ids) of each row."""
    each = list(zip(*(part.tolist() for part in index[1:]), strict=True))
    return [each[start:end] for start, end in zip(index.splits, index.splits[1:], strict=False)]


@pytest.mark.parametrize(("lengths", "split", "rows"), [
    ([], False, []),
    ([0, 0], False, []),
    ([4, 0, 4], False, [[(0, 0, 4)], [(2, 0, 4)]]),
    ([9], False, [[(0, 0, 4)]]),
    ([9, 3], True, [[(0, 0, 4)], [(0, 4, 4)], [(0, 8, 1), (1, 0, 3)]]),
    ([1, 3, 2, 2], False, [[(0, 0, 1), (1, 0, 3)], [(2, 0, 2), (3, 0, 2)]]),  # 2 fits 2 better than 1
])  # fmt: skip
def test_rows(lengths: list[int], split: bool, rows: list[Any]) -> None:
    assert pieces(pack(np.array(lengths, np.int64), 4, split=split)) == rows


@given(LENGTHS, st.integers(1, 9), st.booleans())
def test_each_id_is_in_one_row(lengths: list[int], width: int, split: bool) -> None:
    rows = pieces(pack(np.array(lengths, np.int64), width, split=split))
    assert all(0 < sum(ids for _, _, ids in row) <= width for row in rows)
    assert all(row == sorted(row) for row in rows)
    found = Counter((record, first + n) for row in rows for record, first, ids in row for n in range(ids))
    kept = [length if split else min(length, width) for length in lengths]
    assert found == Counter((record, n) for record, length in enumerate(kept) for n in range(length))
    if not split:
        assert len([1 for row in rows for _ in row]) == np.count_nonzero(lengths), "no record is cut into pieces"


@given(LENGTHS, st.integers(1, 9), st.sets(st.integers(0, 59)))
def test_records_are_left_out_of_their_rows(lengths: list[int], width: int, gone: set[int]) -> None:
    gone = {record for record in gone if record < len(lengths)}
    before = pack(np.array(lengths, np.int64), width, split=True)
    left = [record for record in range(len(lengths)) if record not in gone]
    rows = [[(left.index(record), *rest) for record, *rest in row if record not in gone] for row in pieces(before)]
    assert pieces(before.without(gone, len(lengths))) == [row for row in rows if row]


@pytest.mark.parametrize(("pack", "index"), [
    (Pack(8, ("text",)), PackFile(9, "x", "0" * 64, 0, 0, 0)),
    (Pack(0, ("text",)), None),
    (Pack(8, ("texts",)), None),
])  # fmt: skip
def test_a_manifest_of_other_packs_is_refused(pack: Pack, index: PackFile | None, tmp_path: Path) -> None:
    file = published.write_version(tmp_path, packs=(pack,)) / "dataset.json"
    manifest = json.loads(file.read_text())
    manifest["splits"]["train"]["shards"][0]["packs"] = [index.to_json()] if index else []
    file.write_text(json.dumps(manifest))
    with raises(DatasetError, "packs"):
        open_dataset(tmp_path)


def test_groups_hold_neighbours_and_waste_little(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(4, 1, 60_000).astype(np.int64), 1, None)
    monkeypatch.setattr(tfrecord, "GROUP_IDS", 0)
    made = pack(lengths, 512, split=False)
    spread = [max(each)[0] - min(each)[0] for each in pieces(made)]
    assert max(spread) < 5_000
    assert 1 - made.sizes.sum() / (512 * (len(made.splits) - 1)) < 0.003


SPEC = """
name: talks
source: {{format: jsonl, path: "{path}"}}
key: id
splits: {{train: 80, validation: 20}}
shards: {{train: 4, validation: 1}}
rejects: {{max_share: 0.5}}
pack:
  - {{length: 8, features: [ids, mask], padding: {{mask: -100}}}}
  - {{length: 32, features: [mask, ids], split: true}}
features:
  ids: {{kind: raw, type: int64, many: true}}
  mask: {{kind: raw, type: int64, many: true}}
  text: {{kind: text, tokenizer: bytes, pack: 64}}
  tag: {{kind: category}}
"""


def row(number: int) -> dict[str, Any]:
    ids = [1000 * number + place for place in range(number * 7 % 12 if number % 40 else 70)]
    mask = [-id_ for id_ in ids] + [0] * (number % 50 == 7)
    return {"id": f"k{number}", "ids": ids, "mask": mask, "text": "x" * (number % 9), "tag": "ab"[number % 2]}


ROWS = [row(number) for number in range(300)]
GOOD = {each["id"]: each["ids"] for each in ROWS if len(each["ids"]) == len(each["mask"])}


def write(folder: Path, rows: Sequence[dict[str, Any]] = ROWS) -> Path:
    return write_jsonl(folder / "rows.jsonl", rows)


def publish(folder: Path, spec: str = SPEC) -> Manifest:
    return build(parse_spec(spec.format(path=write(folder))), str(folder / "out")).manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs")
    publish(folder)
    return folder


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Dataset:
    return open_dataset(folder / "out")


def packed(dataset: Dataset, length: int = 8, split: str = "train+validation", **options: Any) -> Input:
    options = {"batch_size": 2, "label": None, "drop_remainder": False} | options
    return dataset.training_input(split, text="packed", text_length=length, **options)


def unpacked(batches: Any) -> list[list[int]]:
    """The ids of each segment; and checks that the mask, of the same places, says the same."""
    found = []
    for batch in batches:
        first = "ids" if "ids_segments" in batch else "mask"
        parts = (batch[name] for name in ("ids", "mask", f"{first}_segments", f"{first}_positions"))
        for ids, mask, segments, positions in zip(*parts, strict=True):
            assert (mask == np.where(segments > 0, -ids, -100 if len(ids) == 8 else 0)).all()
            assert not ids[segments == 0].any()
            for segment in range(1, segments.max() + 1):
                found.append(ids[segments == segment].tolist())
                assert positions[segments == segment].tolist() == list(range(len(found[-1])))
    return found


def kept(length: int, keys: set[str] | None = None) -> list[list[int]]:
    """The segments of all rows, as the spec says."""
    lists = [ids for key, ids in GOOD.items() if keys is None or key in keys]
    if length == 8:
        return sorted(ids[:8] for ids in lists if ids)
    return sorted(ids[start : start + length] for ids in lists for start in range(0, len(ids), length))


@pytest.mark.slow
def test_rows_unpack_to_the_records(dataset: Dataset) -> None:
    assert dataset.manifest.rows == {"read": 300, "written": 294, "rejected": 6, "duplicates": 0}
    assert dataset.manifest.rejects["by_reason"] == {"unequal_lists": 6}
    for length in (8, 32):
        given = packed(dataset, length)
        assert sorted(unpacked(given.as_numpy())) == kept(length)
        shards = [shard.packs[length == 32] for shard in dataset.manifest.shards]
        assert len(given) == -(-sum(shard.rows for shard in shards) // 2)
        assert sum(shard.cut for shard in shards) == (0 if length == 32 else sum(len(ids) > 8 for ids in GOOD.values()))
        assert sum(shard.empty for shard in shards) == sum(not ids for ids in GOOD.values())
    batch = next(packed(dataset, 64).as_numpy())
    names = ("text", "text_segments", "text_positions")
    assert {name: values.shape for name, values in batch.items()} == dict.fromkeys(names, (2, 64))


@pytest.mark.first(1)
@pytest.mark.slow
@pytest.mark.parametrize("shuffle", ["global", "blocks", "none"])
def test_hosts_workers_and_a_resumed_run_see_the_same_rows(shuffle: str, dataset: Dataset) -> None:
    options = {"shuffle": shuffle, "seed": 3, "epochs": 2, "with_key": True}
    whole = [batch["ids"] for batch in packed(dataset, batch_size=4, **options).as_numpy()]
    of_worker = [batch["ids"] for batch in packed(dataset, batch_size=4, workers=1, **options).as_numpy()]
    as_tf_data = [batch["ids"].numpy() for batch in packed(dataset, batch_size=4, **options).as_tf_data()]
    hosts = [packed(dataset, batch_size=2, host_count=2, host_index=host, **options) for host in (0, 1)]
    running = packed(dataset, batch_size=4, **options).as_numpy()
    keys, of_tf_data = next(running)["key"], next(iter(packed(dataset, batch_size=4, **options).as_tf_data()))["key"]
    assert of_tf_data.to_list() == [keys.row(row).tolist() for row in range(4)]
    for _ in range(2):
        next(running)
    resumed = [each.resume(running.state()) for each in hosts]
    per_step = zip(*(given.as_numpy() for given in resumed), strict=True)
    for expected, one, other, *both in zip(whole[3:], of_worker[3:], as_tf_data[3:], per_step, strict=True):
        assert expected.tolist() == one.tolist() == other.tolist()
        assert sorted(expected.tolist()) == sorted(row for batch in both[0] for row in batch["ids"].tolist())
    with raises(DatasetError, "packed"):
        packed(dataset, 32, batch_size=4, **options).resume(running.state())


@pytest.mark.slow
def test_slices_evaluations_labels_and_mixtures_are_of_rows(dataset: Dataset) -> None:
    rows = sum(shard.packs[0].rows for shard in dataset.manifest.splits["train"].shards)
    assert len(packed(dataset, split="train[:10]", batch_size=5)) == 2
    options = {"batch_size": rows + 1, "pad": True, "text": "packed", "text_length": 8, "label": "mask"}
    evaluation = dataset.evaluation_input("train", **options)
    features, label, weight = next(evaluation.as_numpy())
    assert (weight.sum(), label.shape) == (rows, (rows + 1, 8))
    assert list(features) == ["ids", "ids_segments", "ids_positions"]
    both = mix([packed(dataset, 8, "train", drop_remainder=True) for _ in range(2)], [1, 1])
    assert next(both.as_numpy())["ids"].shape == (2, 8)


@pytest.mark.slow
def test_a_bucket_is_read_by_blocks(folder: Path, dataset: Dataset, tmp_path: Path) -> None:
    url, options = "memory://bucket/talks", {"shuffle": "blocks", "seed": 5, "cache": tmp_path}
    with memory_store() as memory:
        paths = (path for path in (folder / "out").rglob("*") if path.is_file())
        memory.objects |= {f"{url}/{path.relative_to(folder / 'out')}": path.read_bytes() for path in paths}
        found = [batch["ids"].tolist() for batch in packed(open_dataset(url), **options).as_numpy()]
    assert found == [batch["ids"].tolist() for batch in packed(dataset, shuffle="blocks", seed=5).as_numpy()]


@pytest.mark.slow
def test_forgotten_records_leave_their_rows(tmp_path: Path) -> None:
    publish(tmp_path)
    gone = {"k40", "k3", "k5", "k12"}
    forget(str(tmp_path / "out"), [key.encode() for key in gone])
    left = open_dataset(tmp_path / "out")
    for length in (8, 32):
        assert sorted(unpacked(packed(left, length).as_numpy())) == kept(length, GOOD.keys() - gone)
    assert verify(str(tmp_path / "out")).findings.problems == []
    shards = [shard.packs[0] for shard in left.manifest.shards]
    counted = [ids for key, ids in GOOD.items() if key not in gone]
    assert sum(shard.cut for shard in shards) == sum(len(ids) > 8 for ids in counted)
    assert sum(shard.empty for shard in shards) == sum(not ids for ids in counted)


@pytest.mark.slow
def test_spans_keep_their_rows_and_any_runner_makes_the_same(tmp_path: Path) -> None:
    write(tmp_path / "in/a", ROWS[:150])
    spec = parse_spec(SPEC.format(path=tmp_path / "in/{span}/rows.jsonl"))
    build(spec, str(tmp_path / "out"))
    write(tmp_path / "in/b", ROWS[150:])
    second = build(spec, str(tmp_path / "out"))
    assert (second.built_spans, second.kept_spans) == (("b",), ("a",))
    assert sorted(unpacked(packed(open_dataset(tmp_path / "out")).as_numpy())) == kept(8)
    assert verify(str(tmp_path / "out")).findings.problems == []
    whole = build(spec, str(tmp_path / "again")).manifest
    assert [shard.packs for shard in whole.shards] == [shard.packs for shard in second.manifest.shards]


@pytest.mark.slow
def test_damage_is_found(tmp_path: Path) -> None:
    manifest = publish(tmp_path)
    version = tmp_path / "out/versions" / manifest.version
    index = next(shard.packs[0] for shard in manifest.splits["train"].shards)
    data = bytearray((version / index.file).read_bytes())
    data[4 * (index.rows + 1) : 4 * (index.rows + 2)] = b"\xff" * 4
    (version / index.file).write_bytes(data)
    with raises(DatasetError, index.file, "damaged"):
        list(packed(open_dataset(tmp_path / "out")).as_numpy())
    report = verify(str(tmp_path / "out"))
    assert report.findings.counts.keys() == {index.file}
    (version / index.file).unlink()
    with raises(DatasetError, index.file, "missing"):
        packed(open_dataset(tmp_path / "out"))


@pytest.mark.slow
def test_show_says_how_full_rows_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["show", str(folder / "out")])
    shown = capsys.readouterr().out
    manifest = open_dataset(folder / "out").manifest
    each = [shard.packs[0] for shard in manifest.shards]
    rows, ids = sum(one.rows for one in each), sum(one.ids for one in each)
    padding = f"{1 - ids / (8 * rows):.2%} padding"
    assert_names(shown, f"{rows:,} rows of 8", padding, "ids, mask", " cut", "without ids")


@pytest.mark.slow
def test_a_text_alone_is_packed_by_default(tmp_path: Path) -> None:
    text = "features:\n  text: {{kind: text, tokenizer: bytes, keep_length: true, pack: 64}}\n"
    publish(tmp_path, SPEC[: SPEC.index("pack:")] + text)
    dataset = open_dataset(tmp_path / "out")
    assert next(dataset.training_input("train", batch_size=2).as_numpy())["text"].shape == (2, 64)
    assert next(dataset.training_input("train", batch_size=2, text="padded").as_numpy())["text_length"].shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "facts"), [
    ({"length": 9}, ("text_length 8 or 32 or 64", "9")),
    ({"features": ["tag"]}, ("'tag'", "ids, mask")),
    ({"label": "tag"}, ("'tag'", "label=None")),
    ({"balance": True}, ("balance",)),
])  # fmt: skip
def test_what_rows_do_not_hold(options: dict[str, Any], facts: tuple[str, ...], dataset: Dataset) -> None:
    with raises(DatasetError, *facts):
        packed(dataset, **options)


@pytest.mark.parametrize(("old", "new", "facts"), [
    ("length: 32", "length: 8", ("pack", "8")),
    ("[mask, ids]", "[mask, tag]", ("'tag'", "text", "raw")),
    ("[mask, ids]", "[mask, idz]", ("'idz'", "ids")),
    ("[mask, ids]", "[mask, mask]", ("'mask'", "once")),
    ("mask: -100", "text: 5", ("'text'",)),
    ("mask: {{kind: raw, ", "mask: {{kind: raw, max_length: 5, ", ("features.mask.max_length",)),
    ("tag:", "ids_segments:", ("'ids_segments'", "rename")),
])  # fmt: skip
def test_wrong_packs(old: str, new: str, facts: tuple[str, ...]) -> None:
    assert old in SPEC
    with raises(SpecError, *facts):
        parse_spec(SPEC.replace(old, new).format(path="rows.jsonl"))


def test_records_that_are_packed_rows_are_read_for_ever(tmp_path: Path) -> None:
    """Those of an output of an earlier Recordmill: 60 documents, `pack: 16`."""
    with tarfile.open(Path(__file__).with_name("golden_packed_rows.tar.xz")) as archive:
        archive.extractall(tmp_path)
    lengths = np.random.default_rng(5).integers(0, 20, 60).tolist()
    lengths[:3] = [40, 16, 0]
    documents = [[1, *[99 + n % 26] * length] for n, length in enumerate(lengths)]
    given = open_dataset(tmp_path).training_input("train", batch_size=7, drop_remainder=False)
    found = [
        ids[segments == segment].tolist()
        for batch in given.as_numpy()
        for ids, segments in zip(batch["body"], batch["body_segments"], strict=True)
        for segment in range(1, segments.max() + 1)
    ]
    assert sorted(found) == sorted(ids[start : start + 16] for ids in documents for start in range(0, len(ids), 16))
