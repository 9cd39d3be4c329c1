"""A look at the rows: its results are exact, whatever the chunks and workers, and are in the graph."""

import random
import threading
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from recordmill.pipeline.build.analysis.graph import LearnedAnalysis
from recordmill.pipeline.build.context.arrow_files import of_bytes, to_bytes
from recordmill.pipeline.build.context.reports import (
    LOOK_REPORTS,
    ProgressReader,
    chunk_step,
    read_rejects,
    read_report,
)
from recordmill.pipeline.build.images.read import PixelMeter
from recordmill.pipeline.build.summaries import look, summary
from recordmill.pipeline.build.summaries.look import FOLDER, PartialSums, full_buckets, learned
from recordmill.pipeline.build.summaries.numbers import PixelSums
from recordmill.pipeline.build.summaries.words import NO_WORD, TokenizerWords, Vocabularies, VocabularyOptions, counted
from recordmill.pipeline.build.worker.read_chunk import ChunkSums
from recordmill.pipeline.errors import UserError
from recordmill.transforms.texts.text_spec import Text
from recordmill.transforms.values.category_spec import Category
from recordmill.transforms.values.values_spec import Number, Numbers
from tests.constants import constants
from tests.looks import asset, graph_of, look_at, planned_look
from tests.messages import raises
from tests.pictures import saved
from tests.tables import write_jsonl

WORDS = ["the"] * 50 + ["b", "a", "ü", "鳥", "", "a b", "naïve", "na", "🙂"] * 3 + ["x\ny", "z\r", "\n", "Z", "~"]
SPEC = """
name: looked
source: [{format: jsonl, path: FOLDER/train.jsonl, split: train}, {format: jsonl, path: FOLDER/test.jsonl, split: test}]
splits: {train: 50, test: 50}
label: label
features:
  text: {kind: text, vocabulary: 3}
  again: {kind: text, column: text, vocabulary: {shared_with: text}}
  hashed: {kind: text, column: text, hash_buckets: 9}
  label: {kind: category}
  color: {kind: category, optional: true, classes: fresh, order: frequency}
  price: {kind: number}
  size: {kind: number, column: price, normalize: min_max, optional: true, impute: median}
  rank: {kind: number, column: price, quantiles: 2}
"""
TRAIN = [{"text": "a b, A", "label": "cat", "color": "red", "price": 1},
    {"text": "b a", "label": "cat", "color": "blue", "price": 3},
    {"text": "c", "label": "ant", "color": "blue", "price": 2},
    {"text": "", "label": "cat", "color": "", "price": 6}]  # fmt: skip
TEST = [{"text": "never seen", "label": "dog", "color": "green", "price": 1000}]
PRICE = {"mean": 3.0, "variance": 3.5, "count": 4}
FOUND = LearnedAnalysis(
    {"train": 4, "test": 1},
    {
        "text": {"words": 3, "distinct": 3, "tokens": 12, "known_tokens": 12},
        "label": {"words": 3, "distinct": 3, "tokens": 5, "known_tokens": 5},
        "color": {"words": 2, "distinct": 2, "tokens": 3, "known_tokens": 3},
        "price": PRICE,
        "size": {**PRICE, "minimum": 1.0, "maximum": 6.0, "median": 2.5, "relative_error": 0.0},
        "rank": {**PRICE, "boundaries": [3.0], "relative_error": 0.0},
    },
    {"text": [b"a", b"b", b"c"], "label": [b"ant", b"cat", b"dog"], "color": [b"blue", b"red"]},
    {},
)


def look_of(folder: Path, train: list[Any] = TRAIN, chunk_bytes: int = 1 << 20) -> Any:
    for name, rows in (("train", train), ("test", TEST)):
        write_jsonl(folder / f"{name}.jsonl", rows)
    return planned_look(folder / "building", SPEC.replace("FOLDER", str(folder)), chunk_bytes)


@pytest.mark.parametrize(("chunk_bytes", "workers"), [(1 << 20, 1), (60, 1), (60, 3)])
def test_what_is_learned_depends_on_the_rows_alone(chunk_bytes: int, workers: int, tmp_path: Path) -> None:
    look, chunks = look_of(tmp_path, chunk_bytes=chunk_bytes)
    assert (len(chunks) > 2) == (chunk_bytes < 100)
    assert learned(look, look_at(look, chunks[::-1], workers)) == FOUND


@constants(look, FLUSH_ROWS=3)
@constants(summary, FOLD_ROWS=3)
def test_sums_are_passed_on_before_they_are_many(tmp_path: Path) -> None:
    look, chunks = look_of(tmp_path, chunk_bytes=60)
    assert learned(look, look_at(look, chunks)) == FOUND


class HeldWords(Vocabularies):
    """Counts the rows held when they are added up; all rows have the same words."""

    held: ClassVar[list[int]] = []

    def of_rows(self, rows: pa.Table, rejects: list[Any]) -> pa.Table:
        return SAME_WORDS

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        self.held.append(sum(table.num_rows for table in tables))
        return super().add(tables)


SAME_WORDS = counted("text", tf.constant([b"word%05d" % number for number in range(30_000)]))


@pytest.fixture
def held(tmp_path: Path) -> Any:
    """Returns a look that counts words, its chunk, and the rows held at each addition."""
    look, (chunk, _) = look_of(tmp_path)
    HeldWords.held.clear()
    return replace(look, summaries=[HeldWords(look.planned)]), chunk, HeldWords.held


def test_a_bucket_is_merged_in_the_memory_of_its_words_whatever_its_parts(held: Any) -> None:
    look, _, rows = held
    look.merge("vocabularies/000", iter([to_bytes(SAME_WORDS)] * 40))
    assert max(rows) < 200_000
    assert max(look.finish()["vocabularies/000"]["count"].to_pylist()) == 40 * 30_000  # the row of all words


def test_a_chunk_is_looked_at_in_the_memory_of_its_words_whatever_its_rows(held: Any) -> None:
    look, chunk, rows = held
    sums = ChunkSums(look, chunk)
    assert list(sums.add(pa.table({"n": range(40 * 4096)}), [])) == [4096] * 40
    assert sums.write()["vocabularies"]["count"].to_pylist() == [40] * 30_000
    assert max(rows) < 200_000


def test_the_same_words_of_many_chunks_are_passed_on_once(held: Any) -> None:
    look, _, rows = held
    sums = PartialSums(look.summaries)
    assert [element for _ in range(40) for element in sums.add({"vocabularies": SAME_WORDS})] == []
    parts = [of_bytes(part) for _, part in sums.flush()]
    assert sum(part.num_rows for part in parts) == 30_000
    assert max(rows) < 200_000
    assert list(sums.flush()) == []


def test_where_rows_are_shuffled_a_look_counts_for_itself_and_reports_rejects(tmp_path: Path) -> None:
    look, chunks = look_of(tmp_path, [*TRAIN, {**TRAIN[0], "price": "many"}])
    look = replace(look, planned=replace(look.planned, inline=True))
    look_at(look, chunks)
    looked = {"look_read": 6, "look_refused": 1, "look_chunks": 2}
    assert ProgressReader(look.planned.progress).read() == looked
    reports = [read_report(look.planned.workspace, f"{LOOK_REPORTS}/{chunk_step(number)}") for number in (0, 1)]
    assert [(report["read"], report["rejected"]) for report in reports if report] == [(5, 1), (1, 0)]
    (reject,) = read_rejects(look.planned.workspace, [report["rejects"] for report in reports if report][:1])
    assert (reject.reason, reject.position) == ("wrong_type", 4)
    for file in Path(look.planned.progress.url).iterdir():  # type: ignore[attr-defined]
        file.unlink()
    look_at(look, chunks)
    assert ProgressReader(look.planned.progress).read() == looked, "of chunks that an earlier attempt read"


@pytest.mark.parametrize(("kept", "gone"), [((), None), ((b"0",), None), ((b"0", b"lost"), ["lost"])])
def test_only_names_that_no_row_has_are_gone(kept: tuple[bytes, ...], gone: Any, tmp_path: Path) -> None:
    words = Vocabularies(look_of(tmp_path)[0].planned)
    words.options["color"] = replace(words.options["color"], kept=kept)
    table = pa.table({"feature": ["color"] * 2, "word": [b"0", b"1"], "count": [3, 4]})
    assert words.result([words.reduce(table)])["color"].statistics.get("gone") == gone  # or equal rows differ


def test_a_candidate_takes_the_driver_few_bytes(tmp_path: Path) -> None:
    look, _ = look_of(tmp_path)
    words = Vocabularies(look.planned)
    reduced = words.reduce(SAME_WORDS.set_column(0, "feature", pa.array(["color"] * 30_000)))
    words.result([reduced])
    tracemalloc.start()
    found = words.result([reduced])["color"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.statistics == {"words": 30_000, "distinct": 30_000, "tokens": 30_000, "known_tokens": 30_000}
    assert peak < 30_000 * 320


def test_the_driver_learns_tokenizers_from_frequent_words_and_knows_of_others(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"note": "aa aa b"}\n')
    spec = f"{{name: t, source: {{format: jsonl, path: {tmp_path}/rows.jsonl}}, features: {{note: {{kind: text, "
    look, _ = planned_look(tmp_path / "b", spec + "tokenizer: sentencepiece, vocabulary: 9, minimum_count: 2}}}")
    (tokenizers,) = (summary for summary in look.summaries if isinstance(summary, TokenizerWords))
    words = tokenizers.add([counted("note", tf.constant(["aa", "aa", "b", "c", "c", "c"]))])
    assert sorted(tokenizers.reduce(words)["word"].to_pylist()) == [b"aa", b"c"]
    rare = counted("note", tf.constant(["a", "b"]))
    assert tokenizers.reduce(rare).num_rows == 1
    with raises(UserError, "train", "2 times"):
        tokenizers.result([tokenizers.reduce(rare)])


@pytest.fixture
def images(tmp_path: Path) -> Any:
    """Returns a look at three images."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / f"in/{number}.png").write_bytes(saved(form="PNG"))
    spec = f"{{name: p, source: {{format: image_folder, path: {tmp_path}/in}}, splits: {{train: 1}}, features: "
    return planned_look(tmp_path / "b", spec + "{image: {kind: image, size: [2, 2], normalize: dataset}}}")


@pytest.mark.nightly
def test_graphs_of_images_are_traced_before_the_threads_begin(images: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[threading.Thread]()

    class Meter(PixelMeter):
        def __init__(self, *arguments: Any) -> None:
            threads.append(threading.current_thread())
            super().__init__(*arguments)

    monkeypatch.setattr("recordmill.pipeline.build.summaries.numbers.PixelMeter", Meter)
    look, chunks = images
    assert look.result("pixels", look_at(look, chunks))["image"]["images"] == 3
    assert threads == [threading.main_thread()]


def test_an_image_that_is_away_during_the_look_is_a_reject_of_the_look(images: Any, tmp_path: Path) -> None:
    look, chunks = images
    (pixels,) = (summary for summary in look.summaries if isinstance(summary, PixelSums))
    assert pixels.result([]) == {"image": {"mean": [0.0] * 3, "variance": [1.0] * 3, "images": 0}}
    (tmp_path / "in/1.png").unlink()
    assert look.result("pixels", look_at(look, chunks))["image"]["images"] == 2
    names = [name for name in look.planned.workspace.names("look") if name.endswith(".jsonl")]
    (reject,) = read_rejects(look.planned.workspace, names)
    assert (reject.reason, reject.path) == ("unreadable", "1.png")


def test_the_bucket_files_hold_all_sums_and_the_reduced_ones_what_the_driver_needs(tmp_path: Path) -> None:
    many = [row | {"text": f"word{number}"} for number, row in enumerate(TRAIN * 50)]
    look, chunks = look_of(tmp_path, many)
    look_at(look, chunks)
    (words,) = (summary for summary in look.summaries if summary.name == "vocabularies")
    folder = Path(look.planned.workspace.url, FOLDER, "vocabularies")
    full, reduced = (sum(file.stat().st_size for file in folder.glob(f"{name}-*")) for name in ("bucket", "reduced"))
    assert len(list(folder.glob("bucket-*"))) > 1
    assert reduced < full
    assert words.options["text"].top_k == 3


def test_the_files_of_a_version_are_the_same_whatever_the_chunks(tmp_path: Path) -> None:
    files = []
    for chunk_bytes, workers in ((1 << 20, 1), (60, 2)):
        (tmp_path / str(chunk_bytes)).mkdir()
        look, chunks = look_of(tmp_path / str(chunk_bytes), chunk_bytes=chunk_bytes)
        look_at(look, chunks[::-1], workers)
        files.append(dict(full_buckets(look.planned.workspace)))
    assert files[0] == files[1]
    words = [of_bytes(data) for name, data in files[0].items() if name.startswith("summaries/vocabularies/")]
    colors = pa.concat_tables(words).filter(pc.field("feature") == "color")
    assert sorted(colors["word"].to_pylist()) == [b"blue", b"red"]


def test_a_chunk_is_read_once_and_a_damaged_file_never_counts(tmp_path: Path) -> None:
    look, chunks = look_of(tmp_path)
    look_at(look, chunks)
    (tmp_path / "train.jsonl").write_text("this is read by nobody")
    assert learned(look, look_at(look, chunks)) == FOUND
    file = Path(look.planned.workspace.url, FOLDER, "chunk-000000.arrow")
    file.write_bytes(file.read_bytes()[:-1])
    assert learned(look, look_at(look, chunks)) != FOUND


def test_another_looks_files_never_count(tmp_path: Path) -> None:
    look, chunks = look_of(tmp_path)
    look_at(look, chunks)
    assert look.read_sums(chunks[0]) is not None
    assert look.read_sums(replace(chunks[0], bytes=1)) is None
    assert replace(look, summaries=look.summaries[:1]).read_sums(chunks[0]) is None
    assert look.read_done() is not None
    file = Path(look.planned.workspace.url, FOLDER, "done.arrow")
    file.write_bytes(file.read_bytes() + b"x")
    assert look.read_done() is None


def test_no_rows_give_no_words_and_numbers_as_they_are(tmp_path: Path) -> None:
    look, _ = look_of(tmp_path)
    found = learned(look, look_at(look, []))
    assert found.rows == {"train": 0, "test": 0}
    assert found.vocabularies == {"text": [NO_WORD], "label": [NO_WORD], "color": [NO_WORD]}
    assert found.statistics["size"] == {
        "mean": 0.0, "variance": 1.0, "count": 0, "minimum": 0.0, "maximum": 0.0, "median": 0.0, "relative_error": 0.0
    }  # fmt: skip
    assert found.statistics["rank"]["boundaries"] == []


@pytest.mark.first(1)
@pytest.mark.slow
@pytest.mark.parametrize(("top_k", "minimum"), [(None, 1), (4, 1), (None, 2)])
def test_words_come_in_the_order_of_stock_tensorflow_transform(tmp_path: Path, top_k: int | None, minimum: int) -> None:
    def preprocessing(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        stock = tft.vocabulary(inputs["words"], top_k=top_k, frequency_threshold=minimum, vocab_filename="stock")
        return {"stock": tft.apply_vocabulary(inputs["words"], stock)}

    schema = schema_utils.schema_from_feature_spec({"words": tf.io.FixedLenFeature([], tf.string)})
    options = PipelineOptions([], direct_running_mode="in_memory", pipeline_type_check=False)
    with beam.Pipeline(FnApiRunner(), options) as pipeline, tft_beam.Context(temp_dir=str(tmp_path / "temporary")):
        rows = pipeline | beam.Create([{"words": word} for word in random.Random(1).sample(WORDS, len(WORDS))])
        graph = (rows, dataset_metadata.DatasetMetadata(schema)) | tft_beam.AnalyzeDataset(preprocessing)
        _ = graph | tft_beam.WriteTransformFn(str(tmp_path / "export"))
    stock = asset(tft.TFTransformOutput(str(tmp_path / "export")), "stock")
    counts = {word.encode(): WORDS.count(word) for word in WORDS}
    ours = VocabularyOptions("words", top_k, minimum).words(counts)
    assert b"".join(word + b"\n" for word in ours) == stock
    assert stock.startswith(b"the\n")


FEATURES: dict[str, Any] = {
    "text": Text(kind="text", vocabulary=100),
    "label": Category(kind="category"),
    "price": Number(kind="number"),
    "size": Number(kind="number", normalize="min_max", optional=True, impute="median", indicator=True),
    "rank": Number(kind="number", column="price", quantiles=2),
    "sizes": Numbers(kind="numbers", quantiles=3),
}
SPECS: dict[str, Any] = {
    **{name: tf.TensorSpec([None], tf.string) for name in ("text", "label")},
    **{name: tf.TensorSpec([None], tf.float32) for name in ("price", "size", "rank")},
    "sizes": tf.RaggedTensorSpec([None, None], tf.float32, 1, tf.int64),
}
RAW: dict[str, Any] = {"text": tf.constant(["a b NEW", ""]), "label": tf.constant(["dog", "cow"]),
    "price": tf.constant([4.0, 2.0]), "size": tf.constant([5.0, float("nan")]), "rank": tf.constant([3.0, 2.0]),
    "sizes": tf.ragged.constant([[1.0, 9.0, 3.0], []], ragged_rank=1, row_splits_dtype=tf.int64)}  # fmt: skip


def test_of_nothing_every_word_is_unknown_and_every_number_as_it_is(tmp_path: Path) -> None:
    nothing = {"mean": 0.0, "variance": 1.0, "minimum": 0.0, "maximum": 0.0, "median": 0.0, "boundaries": []}
    numbers = dict.fromkeys(("price", "size", "rank", "sizes"), nothing)
    words = {"text": [NO_WORD], "label": [NO_WORD]}
    stored = graph_of(FEATURES, "label", SPECS, words, numbers, tmp_path).transform_features_layer()(RAW)
    assert stored["text"].to_list() == [[1, 1, 1], []]
    assert stored["label"].numpy().tolist() == [-1, -1]
    assert stored["price"].numpy().tolist() == [4.0, 2.0]
    assert stored["size"].numpy().tolist() == [5.0, 0.0]
    assert stored["rank"].numpy().tolist() == [0, 0]
    assert np.isfinite(stored["sizes"].flat_values).all()
