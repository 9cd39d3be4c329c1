"""Windows of long texts: several records of a row, as the package `tokenizers` cuts; rows are counted apart."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf
from tokenizers import Tokenizer

from recordmill import Dataset, open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.worker.build_shard import expand, too_much_in_windows
from recordmill.pipeline.cli.show import print_dataset
from recordmill.pipeline.compare.diff import diff
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.export.export import export
from recordmill.pipeline.forget import forget
from recordmill.pipeline.reader.parsing import parse
from recordmill.pipeline.reader.records import FrameBatch
from recordmill.pipeline.rows import KEY_ALONE, open_records
from recordmill.pipeline.spec.model import SpecError, load_spec, parse_spec
from recordmill.pipeline.verify.verify import RecordChecks, verify
from recordmill.pipeline.versions.publishing import Published
from recordmill.transforms.base.stored import KEY
from recordmill.transforms.texts.text_stored import TokenizerOptions, Window
from recordmill.transforms.texts.tokenizers import TextTokenizer
from tests import models
from tests.messages import assert_names, raises


@pytest.mark.parametrize("rows", [2_000, pytest.param(10_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("length", "stride"), [(16, 12), (16, 16), (5, 1)])
def test_windows_are_those_of_the_package(length: int, stride: int, rows: int) -> None:
    made, draw = models.byte_level(), np.random.default_rng(0)
    sentences = models.corpus()
    texts = ["".join(draw.choice(sentences[:400], draw.integers(0, 3))) for _ in range(rows - len(models.HARD))]
    texts += models.HARD
    data = made.to_str()
    theirs = Tokenizer.from_str(data)
    theirs.enable_truncation(length, stride=length - stride)
    expected = [[each.ids, *(more.ids for more in each.overflowing)] for each in theirs.encode_batch(texts)]
    ids = TextTokenizer(data.encode(), TokenizerOptions(kind="text", tokenizer="huggingface")).encode_batch(texts).ids
    stored = {"text": tf.RaggedTensor.from_row_splits(ids.values, ids.splits)}
    expanded, of_rows = expand(stored, ["text"], Window(length, stride))
    ours: list[list[list[int]]] = [[] for _ in texts]
    for row, window in zip(of_rows.tolist(), expanded["text"].to_list(), strict=True):
        ours[row].append(window)
    assert ours == expected


def test_windows_repeat_the_bytes_of_a_row_as_often_as_is_allowed() -> None:
    ids = tf.RaggedTensor.from_row_lengths(tf.zeros(200_005, tf.int64), [100_000, 5, 100_000])
    notes = tf.constant([b"n" * 2_700, b"n" * 99_999, b"n" * 2_600])
    (fault,) = too_much_in_windows({"text": ids, "note": notes}, ["text"], Window(4, 1)).items()
    assert fault[0] == 0
    assert fault[1].reason == "too_large"
    assert_names(fault[1].message, f"{99_997 * 2_732:,}", "268,435,456")


def test_other_features_are_repeated_whatever_their_shape() -> None:
    names = {"text": tf.ragged.constant([[1, 2, 3], [], [4]], dtype=tf.int64), "word": tf.constant(["a", "b", "c"])}
    more = {"boxes": tf.ragged.constant([[[1.0, 2.0]], [], []], ragged_rank=1), "grid": tf.reshape(tf.range(6), [3, 2])}
    stored, rows = expand({**names, **more}, ["text"], Window(2, 2))
    assert rows.tolist() == [0, 0, 1, 2]
    assert stored["word"].numpy().tolist() == [b"a", b"a", b"b", b"c"]
    assert stored["boxes"].to_list() == [[[1.0, 2.0]], [[1.0, 2.0]], [], []]
    assert stored["grid"].numpy().tolist() == [[0, 1], [0, 1], [2, 3], [4, 5]]
    with raises(UserError, "'text'", "`window`"):
        expand({"text": tf.zeros([3])}, ["text"], Window(2, 2))


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("text: {kind: text, window: {length: 8, stride: 9}}", ("stride", "8", "9")),
        ("text: {kind: text, window: {length: 8}, max_length: 4}", ("max_length", "`window`")),
        ("text: {kind: text, window: {length: 8}, keep_length: true}", ("keep_length", "`window`")),
        ("text: {kind: text, window: {length: 8}, truncate: start}", ("truncate", "max_length")),
        ("{a: {kind: text, window: {length: 8}}, b: {kind: text, window: {length: 8}}}", ("window", "'b'")),
        ("text: {kind: texts, window: {length: 8}}", ("window",)),
        ("{text: {kind: text, window: {length: 8}}, text_start: {kind: number}}", ("text_start", "rename")),
        (
            "{text: {kind: text, window: {length: 8}}, mask: {kind: raw, type: int64, many: true}}\n"
            "pack: {length: 16, features: [text, mask]}",
            ("window", "'text'", "leave it out"),
        ),
    ],
)
def test_a_contradictory_spec_is_refused(options: str, facts: tuple[str, ...]) -> None:
    features = options if options.startswith("{") else f"{{{options}}}"
    with raises(SpecError, *facts):
        parse_spec(f"name: x\nsource: {{format: jsonl, path: x.jsonl}}\nfeatures: {features}\n")


ROWS, LENGTH, STRIDE = 60, 16, 12
BEGIN, END, FIRST = 1, 2, 3
SPEC = f"""
name: books
source: {{format: jsonl, path: rows.jsonl}}
key: id
splits: {{train: 80, test: 20}}
features:
  text: {{kind: text, tokenizer: bytes, case: keep, begin: true, end: true, pack: 32,
    window: {{length: {LENGTH}, stride: {STRIDE}}}}}
  title: {{kind: text, vocabulary: 100, max_length: 4}}
  label: {{kind: category}}
label: label
rejects: {{max_share: 0.1}}
"""
BAD = 7  # a row with invalid UTF-8


def ids_of(row: int) -> list[int]:
    return [BEGIN, *(byte + FIRST for byte in text(row).encode()), END]


def text(row: int) -> str:
    return "".join(chr(97 + (row * place) % 26) for place in range(row))


def starts(row: int) -> list[int]:
    found = [0]
    while found[-1] + LENGTH < len(ids_of(row)):
        found.append(found[-1] + STRIDE)
    return found


def write(folder: Path, rows: range = range(ROWS), end: str = "") -> None:
    each = [{"id": f"r{row}", "text": text(row), "title": f"t{row % 5}", "label": "ab"[row % 2]} for row in rows]
    each[-1]["text"] += end
    lines = [json.dumps(row).encode() for row in each]
    lines[BAD] = lines[BAD].replace(b'"text": "', b'"text": "\xff')
    (folder / "rows.jsonl").write_bytes(b"\n".join(lines))
    (folder / "dataset.yaml").write_text(SPEC)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    folder = tmp_path_factory.mktemp("books")
    write(folder)
    return build(load_spec(str(folder / "dataset.yaml")), str(folder / "out"))


@pytest.fixture(scope="module")
def dataset(published: Published) -> Dataset:
    return open_dataset(Path(published.folder))


@pytest.mark.slow
def test_rows_and_records_are_counted_apart(
    published: Published, dataset: Dataset, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, good = published.manifest, [row for row in range(ROWS) if row != BAD]
    assert (manifest.rows["read"], manifest.rows["written"], manifest.rows["rejected"]) == (ROWS, ROWS - 1, 1)
    assert sum(split.source_rows or 0 for split in manifest.splits.values()) == ROWS - 1
    assert manifest.records == sum(len(starts(row)) for row in good)
    labels = [sum(len(starts(row)) for row in good if row % 2 == label) for label in (0, 1)]
    counts = [dataset.label_counts(split) for split in dataset.splits]
    assert [sum(each["ab"[label]] for each in counts) for label in (0, 1)] == labels
    train = manifest.splits["train"]
    lengths = manifest.statistics["text"]["lengths"]
    assert (lengths["rows"], lengths["longest"]) == (train.records, LENGTH)
    assert sum(index.ids for shard in train.shards for index in shard.packs) == lengths["ids"]
    monkeypatch.setenv("COLUMNS", "200")
    print_dataset(manifest, Path(published.folder), [])
    assert_names(capsys.readouterr().out, f"at most {LENGTH}, a window every {STRIDE}", "rows", f"{train.source_rows}")


@pytest.mark.slow
def test_a_key_finds_all_windows_and_the_first_one(dataset: Dataset) -> None:
    (split,) = {record.split for record in dataset.records(key="r50")}
    values = [record.values["text"] for record in dataset.records(key="r50")]
    assert [(value.window, value.start) for value in values] == [*enumerate(starts(50))]
    assert [record.values["label"] for record in dataset.records(key="r50")] == ["a"] * len(values)
    assert_names(values[1], f"window 1, from id {STRIDE}")
    rows = dataset.source(split, label=None)
    number = rows.number_of("r50")
    assert [int(rows[number + each]["text_window"]) for each in range(len(values))] == [*range(len(values))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "fact"), [([1, 0, 2], "before 1"), ([0, 2], "lacks the window before 2"), ([0, 0, 1], "duplicate")]
)
def test_verify_names_windows_out_of_order(published: Published, order: list[int], fact: str) -> None:
    manifest, found = published.manifest, list[str]()
    split, shard = next((name, each) for name, split in manifest.splits.items() for each in split.shards)
    with open_records(published.folder, shard) as records:
        data = [bytes(record) for record in records.read(np.arange(len(records)))]
    checks = RecordChecks(manifest, split, 0, lambda record, offset, message: found.append(message))
    keys = [*map(bytes, cast(Any, parse(data, KEY_ALONE)[KEY]))]
    first = next(at for at in range(len(keys)) if keys[at : at + 3] == keys[at : at + 1] * 3)
    chosen = [data[first + each] for each in order]
    checks.check(FrameBatch([*range(len(chosen))], [0] * len(chosen), chosen))
    assert_names(found, fact)


@pytest.mark.slow
def test_forgetting_removes_all_windows_and_diff_counts_rows(tmp_path: Path) -> None:
    write(tmp_path)
    spec, output = load_spec(str(tmp_path / "dataset.yaml")), str(tmp_path / "out")
    first = build(spec, output).manifest
    done = forget(output, [b"r50", b"r3", b"none"])
    assert (done.rows, done.unknown) == (len(starts(50)) + 1, (b"none",))
    assert done.held_by == {first.version: done.rows}
    assert (done.manifest.rows["written"], done.manifest.rows["forgotten"]) == (ROWS - 3, 2)
    assert sum(split.source_rows or 0 for split in done.manifest.splits.values()) == ROWS - 3
    dataset = open_dataset(output)
    assert not list(dataset.records(key="r50"))
    assert verify(output).findings.problems == []
    rows = diff(open_dataset(output, first.version), dataset).rows
    assert rows is not None
    assert (rows.added, rows.removed, rows.changed, rows.unchanged) == (0, 2, 0, ROWS - 3)
    assert sorted(rows.examples["removed"]) == ["r3", "r50"]
    write(tmp_path, end="!")
    last = build(spec, output).manifest
    assert (last.rows["written"], last.rows["forgotten"]) == (ROWS - 3, 2)
    assert verify(output).findings.problems == []
    rows = diff(dataset, open_dataset(output)).rows
    assert rows is not None
    assert (rows.added, rows.removed, rows.features["text"]) == (0, 0, 1), "one text, after its first window"


@pytest.mark.slow
def test_an_export_keeps_windows_as_rows(dataset: Dataset, tmp_path: Path) -> None:
    done = export(dataset, "parquet", tmp_path / "to")
    assert done.rows == dataset.manifest.records
