"""Several documents a row: no id is lost, rows depend only on the documents, and all counts add up."""

import json
import random
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipeline.build.attempt.reconcile import ReconcileError, check_shards
from recordmill.pipeline.build.beam import runners
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.outcome import Published
from recordmill.pipeline.build.results.results import NothingToPublishError
from recordmill.pipeline.build.worker.build_shard import PackedRecords, PackedRow, RowPacker
from recordmill.pipeline.cli.show import print_dataset
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split
from recordmill.pipeline.dataset.profile import add_up_lengths, describe_lengths, measure_lengths
from recordmill.pipeline.json_values import read_as
from recordmill.pipeline.spec.features.text import Text
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from recordmill.transforms.contract.kinds import read_description, read_descriptions
from recordmill.transforms.contract.kinds.base import tfds_stored
from recordmill.transforms.contract.kinds.text import TextDescription
from recordmill.transforms.contract.stored import Stored
from recordmill.transforms.tensorflow import text
from recordmill.transforms.tensorflow.features import parse
from recordmill.transforms.tensorflow.kind import Context, Statistics
from tests.descriptions import whole
from tests.messages import assert_names, raises
from tests.running import BOTH_WAYS, Run

PACKED = {"kind": "text", "max_length": None, "padding_id": 0, "packed": 4}
PACKED |= {"vocabulary_size": 12, "padding_id": 0, "unknown_id": None, "first_id": 1} | PACKED


def pack(lengths: list[int], width: int, open_rows: int = 64) -> list[PackedRow]:
    """Packs documents with consecutive ids; a document's key is its first id."""
    ends = np.cumsum([0, *lengths])
    packer = RowPacker(width, open_rows)
    documents = [np.arange(end - length, end) for length, end in zip(lengths, ends[1:], strict=True)]
    closed = [row for ids in documents for row in packer.add(b"%d" % ids.min(initial=10**6), ids)]
    return closed + packer.rest()


ROWS = [
    # (the documents' lengths, the rows of 4)
    ([], []),
    ([0, 0], []),
    ([4], [[4]]),
    ([9], [[4], [4], [1]]),
    ([3, 2, 1, 0, 2], [[3, 1], [2, 2]]),  # the fullest row that has room, not the first
    ([1, 3, 1, 3], [[1, 3], [1, 3]]),
    ([3, 6, 1], [[4], [3, 1], [2]]),  # a row is told of when it is full
]


@pytest.mark.parametrize(("lengths", "rows"), ROWS)
def test_rows(lengths: list[int], rows: list[list[int]]) -> None:
    assert [row.lengths for row in pack(lengths, 4)] == rows


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(1, 9), st.integers(1, 5))
def test_no_id_is_lost_and_no_document_is_mixed(lengths: list[int], width: int, open_rows: int) -> None:
    rows = pack(lengths, width, open_rows)
    pieces = sorted((piece.tolist() for row in rows for piece in row.pieces), key=lambda piece: piece[0])
    assert [id_ for piece in pieces for id_ in piece] == list(range(sum(lengths)))
    ends = np.cumsum([0, *lengths])
    cuts = {start for end, length in zip(ends[1:], lengths, strict=True) for start in range(end - length, end, width)}
    assert {piece[0] for piece in pieces} == cuts, "a document is cut after so many ids, and nowhere else"
    assert all(0 < sum(row.lengths) <= width for row in rows)
    assert sum(row.documents for row in rows) == sum(length > 0 for length in lengths)
    assert all(int(row.key) <= row.pieces[0][0] for row in rows)


CLOSED = [(1, [[7], [6], [5, 3]]), (2, [[7], [6, 3], [5]]), (3, [[7, 3], [6], [5]])]


@pytest.mark.parametrize(("open_rows", "rows"), CLOSED)
def test_the_fullest_of_too_many_open_rows_is_closed(open_rows: int, rows: list[list[int]]) -> None:
    assert [row.lengths for row in pack([7, 6, 5, 3], 10, open_rows)] == rows


def records(batches: list[list[list[int]]], width: int = 4) -> tuple[list[bytes], dict[str, int]]:
    packing, found = PackedRecords("x", width), list[bytes]()
    for batch in batches:
        ids = tf.ragged.constant(batch, tf.int64, ragged_rank=1)
        found += packing.add([b"%d" % (one or [0])[0] for one in batch], {"x": ids})
    return found + packing.rest(), packing.report()


def test_records_are_read_as_they_were_packed() -> None:
    documents = [[10, 11, 12], [], [20, 21], [30], [40, 41, 42, 43, 44]]
    found, report = records([documents])
    assert report == {"documents": 5, "ids": 11}
    assert records([documents[:2], [], documents[2:]]) == (found, report), "batches do not matter"
    read = parse(read_descriptions({"x": PACKED}), tf.constant(found), with_key=True)
    assert read["x"].numpy().tolist() == [[10, 11, 12, 30], [40, 41, 42, 43], [20, 21, 44, 0]]
    assert read["x_segments"].numpy().tolist() == [[1, 1, 1, 2], [1, 1, 1, 1], [1, 1, 2, 0]]
    assert read["x_positions"].numpy().tolist() == [[0, 1, 2, 0], [0, 1, 2, 3], [0, 1, 0, 0]]
    assert read["key"].numpy().tolist() == [b"10", b"40", b"20"]
    assert [read[name].dtype for name in ("x", "x_segments", "x_positions")] == [tf.int64, tf.int32, tf.int32]


@pytest.mark.parametrize("batches", [[], [[]], [[[]]]])
def test_no_ids_are_no_records(batches: list[list[list[int]]]) -> None:
    assert records(batches) == ([], {"documents": sum(map(len, batches)), "ids": 0})


def ragged(rows: list[list[int]]) -> tf.RaggedTensor:
    return tf.ragged.constant(rows, tf.int64, ragged_rank=1)


FINISHED = [
    # (ids, lengths, padded, segments, positions)
    ([[5, 6, 7], [8]], [[1, 2], [1]], [[5, 6, 7, 9], [8, 9, 9, 9]], [[1, 2, 2, 0], [1, 0, 0, 0]],
     [[0, 0, 1, 0], [0, 0, 0, 0]]),
    ([[], [5]], [[0], [1]], [[9, 9, 9, 9], [5, 9, 9, 9]], [[0] * 4, [1, 0, 0, 0]], [[0] * 4] * 2),
    ([[1, 2, 3, 4, 5]], [[5]], [[1, 2, 3, 4]], [[1, 1, 1, 1]], [[0, 1, 2, 3]]),  # as serving may have it
    ([], [], [], [], []),
]  # fmt: skip


@BOTH_WAYS
@pytest.mark.parametrize(("ids", "lengths", "padded", "segments", "positions"), FINISHED)
def test_model_ready(run: Run, ids: Any, lengths: Any, padded: Any, segments: Any, positions: Any) -> None:
    description = TextDescription.from_json(PACKED | {"padding_id": 9})
    ready = run(lambda stored: text.features(description, stored), {"": ragged(ids), "lengths": ragged(lengths)})
    assert {part: tensor.numpy().tolist() for part, tensor in ready.items()} == {
        "": padded, "segments": segments, "positions": positions
    }  # fmt: skip
    assert all(tensor.shape == (len(ids), 4) for tensor in ready.values())


@BOTH_WAYS
def test_the_graph_gives_each_document_as_a_row_of_its_own(run: Run) -> None:
    options = Text(kind="text", tokenizer="bytes", end=True, max_length=3, pack=2).options()

    def stored(column: tf.Tensor) -> Any:
        return text.prepare(options, column, Context()).store(Statistics())

    parts = run(stored, tf.constant(["abc", "", "a"]))
    assert parts["lengths"].to_list() == [[3], [1], [2]] == [[len(row)] for row in parts[""].to_list()]


def test_how_it_is_described() -> None:
    packed = Text(kind="text", tokenizer="bytes", pack=1024, max_length=9000)
    description = packed.describe({})
    written = description.to_json()
    assert (written["packed"], written["max_length"]) == (1024, 9000)
    assert "packed" not in Text(kind="text", tokenizer="bytes").describe({}).to_json()
    assert list(description.parts()) == ["", *packed.parts()]
    assert read_description(written).parts()["lengths"] == Stored("int64", None)
    assert tfds_stored(description.parts()["lengths"]) != description.tfds()
    assert packed.read_parts() == ("segments", "positions")


SPEC = """
name: d
source: {format: jsonl, path: rows.jsonl}
features:
  body: {kind: text, pack: 8}
"""
WRONG = [
    (SPEC + "  tag: {kind: category}", ("'tag'",)),
    (SPEC + "label: body", ("`label`",)),
    (SPEC + "preprocessing: extra:function", ("`preprocessing`",)),
]


@pytest.mark.parametrize(("spec", "facts"), WRONG)
def test_nothing_stands_beside_packed_rows(spec: str, facts: tuple[str, ...]) -> None:
    with raises(SpecError, "dataset.yaml:5: features.body.pack:", "or `pack`", *facts):
        parse_spec(spec)
    parse_spec(spec.replace(", pack: 8", ""))


@pytest.mark.parametrize(
    ("option", "facts"),
    [
        ("pack: 8, keep_length: true", ("features.body.keep_length:", "`pack`")),
        ("pack: 0", ("features.body.pack:", "1 or more", "`0`")),
        ("pack: 1048577", ("features.body.pack:", "1.04858e+06 or less")),
    ],
)
def test_wrong_options(option: str, facts: tuple[str, ...]) -> None:
    with raises(SpecError, *facts):
        parse_spec(SPEC.replace("pack: 8", option))


def shard(documents: int, ids: int, rejected: int = 0) -> dict[str, Any]:
    packed = {"documents": documents, "ids": ids}
    return {"records": 2, "rejected": rejected, "shard": 1, "split": "train", "packed": packed,
            "lengths": {"x": {"ids": 30}}}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "facts"),
    [
        (shard(5, 30), None),
        (shard(4, 30, rejected=1), None),
        (shard(4, 30), ("5 rows", "shard 1 of train", "4 ")),
        (shard(5, 29), ("shard 1 of train", "30 ids", "29")),
    ],
)
def test_documents_and_ids_are_reconciled(found: dict[str, Any], facts: tuple[str, ...] | None) -> None:
    if facts is None:
        return check_shards({0: 5}, {0: found})
    with raises(ReconcileError, *facts):
        check_shards({0: 5}, {0: found})
    return None


@given(st.lists(st.lists(st.integers(0, 50), max_size=70), min_size=1, max_size=4))
def test_lengths_are_measured(shards: list[list[int]]) -> None:
    found = add_up_lengths([measure_lengths(np.array(lengths, np.int64)) for lengths in shards])
    every = [length for lengths in shards for length in lengths]
    batches = [[number for _, number in group] for lengths in shards
               for _, group in groupby(enumerate(lengths), lambda pair: pair[0] // 32)]  # fmt: skip
    padded = sum(len(batch) * max(batch) for batch in batches)
    assert found == {"rows": len(every), "ids": sum(every), "longest": max(every, default=0), "in_batches": padded}


MEASURED = {"rows": 4, "ids": 10, "longest": 6, "in_batches": 24}
LENGTHS = ("mean 2.5 ids", "longest 6", "32 rows wastes 58.3%")


@pytest.mark.parametrize(
    ("description", "found", "facts"),
    [
        ({"max_length": None}, {}, LENGTHS),
        ({"max_length": 1000}, {}, (*LENGTHS, "1,000 wastes 99.8%")),
        ({"packed": 4}, {"packed_rows": 3}, (*LENGTHS, "packing wastes 16.7%")),
        ({}, {"ids": 0}, ("no ids",)),
    ],
)
def test_padding_is_shown(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    description: dict[str, Any],
    found: dict[str, Any],
    facts: tuple[str, ...],
) -> None:
    max_length, packed = description.get("max_length"), description.get("packed")
    line = describe_lengths(MEASURED | found, max_length=max_length, packed=packed)
    assert_names(line, *facts)
    features = {"x": whole({"kind": "text", **description}), "y": {"kind": "own", "stored": "int64"}}
    statistics = {"x": {"lengths": MEASURED | found}, "y": {"lengths": MEASURED}}
    rows = {"read": 4, "written": 4, "rejected": 0}
    split = Split((Shard("f", 9, 3, "00", "i"),), documents=4 if "packed" in description else None)
    print_dataset(Manifest("d", "v", "00", None, features, {"train": split}, statistics, rows), tmp_path, [])
    printed = capsys.readouterr().out
    assert f"\nx: {line}\n" in printed
    assert "\ny: " not in printed
    assert ("documents" in printed, "packed in rows of 4" in printed) == ("packed" in description,) * 2


def test_a_manifest_with_and_without_documents() -> None:
    for split in (Split((), documents=7), Split(())):
        assert read_as(json.loads(json.dumps(split.to_json())), Split, "a split") == split
    assert "documents" not in Split(()).to_json()


DOCUMENTS = 2_500  # three batches of the graph
BUILT = """
name: texts
source: {format: jsonl, path: PATH}
key: id
shards: {train: 2}
features:
  body: {kind: text, tokenizer: bytes, begin: true, pack: 64}
"""


def rows() -> list[str]:
    lengths = np.random.default_rng(5).integers(0, 60, DOCUMENTS).tolist()
    lengths[:3] = [200, 64, 0]
    return [json.dumps({"id": f"k{n}", "body": chr(97 + n % 26) * length}) for n, length in enumerate(lengths)]


def built(folder: Path, lines: list[str], spec: str = BUILT) -> Published:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("\n".join(lines))
    return build(parse_spec(spec.replace("PATH", str(folder / "rows.jsonl"))), str(folder / "out"))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return built(tmp_path_factory.mktemp("packed"), rows())


def read(published: Published) -> dict[str, np.ndarray]:
    manifest = published.manifest
    files = [f"{published.folder}/{shard.file}" for split in manifest.splits.values() for shard in split.shards]
    serialized = tf.constant([record.numpy() for record in tf.data.TFRecordDataset(files)])
    return {
        name: values.numpy()
        for name, values in parse(read_descriptions(manifest.features), serialized, with_key=True).items()
    }


def documents_of(read: dict[str, np.ndarray]) -> list[list[int]]:
    """Returns the content of each segment, without padding."""
    pairs = zip(read["body"], read["body_segments"], strict=True)
    return [ids[segments == one].tolist() for ids, segments in pairs for one in range(1, segments.max() + 1)]


@pytest.mark.slow
def test_a_build_holds_every_document(published: Published) -> None:
    manifest = published.manifest
    texts = [json.loads(line)["body"].encode() for line in rows()]
    wanted = [[1, *(byte + 2 for byte in body)] for body in texts]
    pieces = [document[start : start + 64] for document in wanted for start in range(0, len(document), 64)]
    found = read(published)
    assert sorted(documents_of(found)) == sorted(pieces)
    assert manifest.rows == {"read": DOCUMENTS, "written": DOCUMENTS, "rejected": 0, "duplicates": 0}
    assert sum(split.documents or 0 for split in manifest.splits.values()) == DOCUMENTS
    assert len(found["key"]) == sum(split.records for split in manifest.splits.values()) < DOCUMENTS
    lengths, train = manifest.statistics["body"]["lengths"], manifest.splits["train"]
    assert (lengths["rows"], lengths["packed_rows"], lengths["longest"]) == (train.documents, train.records, 201)
    assert 1 - lengths["ids"] / (64 * train.records) < 0.05


@pytest.mark.slow
def test_the_same_records_whatever_the_order_and_the_threads(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "worker_threads", lambda processes: 4)
    lines = rows()
    random.Random(3).shuffle(lines)
    again = built(tmp_path, lines).manifest
    shards = [[shard.sha256 for split in one.splits.values() for shard in split.shards]
              for one in (published.manifest, again)]  # fmt: skip
    assert shards[0] == shards[1]
    assert published.manifest.statistics == again.statistics


@pytest.mark.slow
def test_serving_gives_a_row_of_one_document(published: Published) -> None:
    serve = tf.saved_model.load(f"{published.folder}/serving").signatures["serving_default"]
    served = {name: tensor.numpy() for name, tensor in serve(body=tf.constant(["ab", "", "x" * 99])).items()}
    assert served.keys() == {"body", "body_segments", "body_positions"}
    assert documents_of(served) == [[1, 99, 100], [1], [1] + [122] * 63]
    assert [served[name].shape for name in sorted(served)] == [(3, 64)] * 3


@pytest.mark.slow
def test_tensorflow_datasets_opens_it(published: Published) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    builder = tfds.builder_from_directory(published.folder)
    assert builder.info.splits["train"].num_examples == published.manifest.splits["train"].records
    first = next(iter(builder.as_dataset(split="train")))
    assert int(tf.reduce_sum(first["body_lengths"])) == len(np.frombuffer(first["body"].numpy(), "<i4"))


@pytest.mark.slow
def test_nothing_is_published_that_lost_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RowPacker.rest

    def lossy(packer: RowPacker) -> list[PackedRow]:
        kept = real(packer)
        kept[0].pieces[0] = kept[0].pieces[0][1:]
        return kept

    monkeypatch.setattr(RowPacker, "rest", lossy)
    with raises(ReconcileError, "shard", "ids", "records"):
        built(tmp_path, rows()[:50])
    assert not (tmp_path / "out/LATEST").exists()


@pytest.mark.slow
def test_documents_without_ids_are_nothing_to_publish(tmp_path: Path) -> None:
    lines = [json.dumps({"id": n, "body": " "}) for n in range(9)]
    with raises(NothingToPublishError, "'train'", " documents", "pack"):
        built(tmp_path, lines, BUILT.replace("bytes, begin: true", "words"))
