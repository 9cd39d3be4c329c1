"""The analyzers in small pipelines: stock tf.Transform's order of words, exact moments, and nothing at all."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

from recordmill.pipeline.build.beam.analyzers import BeamAnalyzers
from recordmill.pipeline.build.beam.vocabularies import (
    BUCKETS,
    CountWords,
    VocabularyOptions,
    merge_bucket,
    write_vocabularies,
)
from recordmill.pipeline.dataset.atomic_files import read_report
from recordmill.pipeline.spec.features.category import Category
from recordmill.pipeline.spec.features.image import Image
from recordmill.pipeline.spec.features.number import Number, Numbers
from recordmill.pipeline.spec.features.text import Text
from recordmill.transforms.tensorflow.preprocessing import PIXEL_COLUMNS, Preprocessing

WORDS = ["the"] * 50 + ["b", "a", "ü", "鳥", "", "a b", "naïve", "na", "🙂"] * 3 + ["x\ny", "z\r", "\n", "Z", "~"]
Rows = list[dict[str, Any]]


def analyze(
    rows: Rows, types: dict[str, Any], preprocessing: Callable[..., Any], folder: Path
) -> tft.TFTransformOutput:
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(types))
    options = PipelineOptions([], direct_running_mode="in_memory", pipeline_type_check=False)
    with beam.Pipeline(FnApiRunner(), options) as pipeline, tft_beam.Context(temp_dir=str(folder / "temporary")):
        data = pipeline | beam.Create(rows)
        graph = (data, metadata) | tft_beam.AnalyzeDataset(preprocessing)
        _ = graph | tft_beam.WriteTransformFn(str(folder / "export"))
    return tft.TFTransformOutput(str(folder / "export"))


def analyzers(folder: Path, *options: VocabularyOptions) -> BeamAnalyzers:
    (folder / "reports").mkdir()
    return BeamAnalyzers({option.name: option for option in options}, str(folder / "reports"))


def scalar(kind: tf.DType) -> tf.io.FixedLenFeature:
    return tf.io.FixedLenFeature([], kind)


def asset(output: tft.TFTransformOutput, name: str) -> bytes:
    return Path(output.transform_savedmodel_dir, "assets", name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("top_k", "minimum"), [(None, 1), (4, 1), (None, 2)])
def test_words_come_in_the_order_of_stock_tensorflow_transform(tmp_path: Path, top_k: int | None, minimum: int) -> None:
    ours = analyzers(tmp_path, VocabularyOptions("words", top_k, minimum))

    def preprocessing(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        words, train = inputs["words"], inputs["train"]
        stock = tft.vocabulary(words, top_k=top_k, frequency_threshold=minimum, vocab_filename="stock")
        mine = ours.vocabularies({"words": words}, train)["words"]
        return {name: tft.apply_vocabulary(words, path) for name, path in (("stock", stock), ("ours", mine))}

    rows = [{"words": word, "train": 1} for word in random.Random(1).sample(WORDS, len(WORDS))]
    types = {"words": scalar(tf.string), "train": scalar(tf.int64)}
    output = analyze(rows, types, preprocessing, tmp_path)
    stock = asset(output, "stock")
    assert asset(output, "words.vocabulary.txt") == stock
    assert stock.startswith(b"the\n")


FEATURES: dict[str, dict[str, Any]] = {
    "text": Text(kind="text", vocabulary=100).options(is_label=False),
    "label": Category(kind="category").options(is_label=True),
    "price": Number(kind="number").options(),
    "size": Number(kind="number", normalize="min_max", optional=True, impute="median", indicator=True).options(),
    "rank": Number(kind="number", column="price", quantiles=2).options(),
    "sizes": Numbers(kind="numbers", quantiles=3).options(),
    "image": Image(kind="image", size=(2, 2), normalize="dataset").options(),  # its pixels come as sums
}
TYPES = {
    "text": scalar(tf.string),
    "label": scalar(tf.string),
    "price": scalar(tf.float32),
    "size": scalar(tf.float32),
    "rank": scalar(tf.float32),
    "sizes": tf.io.RaggedFeature(tf.float32, row_splits_dtype=tf.int64),
    "image": scalar(tf.string),
    "train": scalar(tf.int64),
    "image/pixels": scalar(tf.int64),
    "image/sums": tf.io.FixedLenFeature([3], tf.int64),
    "image/squares": tf.io.FixedLenFeature([3], tf.int64),
}


def row(text: str, label: str, price: float, train: int, pixels: int = 0) -> dict[str, Any]:
    sums = [pixels * np.array(value, np.int64) for value in ((1, 2, 3), (1, 4, 9))]
    measured = dict(zip(PIXEL_COLUMNS, (pixels, *sums), strict=True))
    size = float("nan") if price == 3.0 else 2 * price
    numbers = {"price": price, "size": size, "rank": price, "sizes": [price, price * 3]}
    plain = {"text": text, "label": label, **numbers, "image": "", "train": train}
    return plain | {f"image/{name}": value for name, value in measured.items()}


def built(rows: Rows, folder: Path) -> tuple[tft.TFTransformOutput, str]:
    options = [VocabularyOptions("text", 100), VocabularyOptions("label")]
    ours = analyzers(folder, *options)
    return analyze(rows, TYPES, Preprocessing(FEATURES, ours), folder), ours.reports


PICTURE = tf.io.encode_png(np.zeros((2, 2, 3), np.uint8)).numpy()
NUMBERS: dict[str, Any] = {"price": [4.0, 2.0], "size": [5.0, float("nan")], "rank": [3.0, 2.0]}
RAW: dict[str, Any] = {"text": ["a b NEW", ""], "label": ["dog", "cow"], **NUMBERS, "image": [PICTURE] * 2}
RAW["sizes"] = tf.ragged.constant([[1.0, 9.0, 3.0], []], ragged_rank=1, row_splits_dtype=tf.int64)


def raw_tensors() -> dict[str, Any]:
    return {name: tf.constant(values) if isinstance(values, list) else values for name, values in RAW.items()}


@pytest.mark.slow
def test_what_is_analyzed_is_used_and_reported(tmp_path: Path) -> None:
    rows = [row("a b, A", "cat", 1.0, 1, pixels=5), row("b a", "cat", 3.0, 1), row("", "dog", 0.0, 0)]
    output, reports = built(rows, tmp_path)
    stored = output.transform_features_layer()(raw_tensors())
    assert stored["text"].to_list() == [[2, 3, 1], []]
    assert stored["label"].numpy().tolist() == [1, -1]
    assert stored["price"].numpy().tolist() == [2.0, 0.0]
    text = {"words": 2, "distinct": 2, "tokens": 5, "known_tokens": 5}
    label = {"words": 2, "distinct": 2, "tokens": 3, "known_tokens": 3}
    vocabularies = {"text": text, "label": label}
    assert read_report(reports, "vocabularies") == {"rows": 2, "vocabularies": vocabularies}
    assert stored["size"].numpy().tolist() == [3.0, 0.0]
    assert stored["size_missing"].numpy().tolist() == [0, 1]
    assert stored["rank"].numpy().tolist() == [1, 0]
    assert stored["sizes"].to_list() == [[0, 1, 1], []]
    price = {"mean": 2.0, "variance": 1.0, "count": 2}
    size = {"mean": 2.0, "variance": 0.0, "count": 1, "minimum": 2.0, "maximum": 2.0, "median": 2.0}
    rank = {**price, "boundaries": [3.0], "relative_error": 0.0}
    sizes = {"mean": 4.0, "variance": 9.0, "count": 4, "boundaries": [3.0], "relative_error": 0.0}
    image = {"mean": [1.0, 2.0, 3.0], "variance": [0.0, 0.0, 0.0], "images": 1}
    assert read_report(reports, "moments") == {
        "rows": 2,
        "moments": {
            "price": price,
            "size": {**size, "relative_error": 0.0},
            "rank": rank,
            "sizes": sizes,
            "image": image,
        },
    }


@pytest.mark.slow
def test_nothing_to_analyze_leaves_every_word_unknown_and_every_number_as_it_is(tmp_path: Path) -> None:
    output, reports = built([], tmp_path)
    stored = output.transform_features_layer()(raw_tensors())
    assert stored["text"].to_list() == [[1, 1, 1], []]
    assert stored["label"].numpy().tolist() == [-1, -1]
    assert stored["price"].numpy().tolist() == [4.0, 2.0]
    assert stored["size"].numpy().tolist() == [5.0, 0.0]
    assert stored["rank"].numpy().tolist() == [0, 0]
    for report in ("vocabularies", "moments"):
        assert (read_report(reports, report) or {})["rows"] == 0


def flushed(counter: CountWords, batches: list[tuple[Any, ...]]) -> list[tuple[int, Any]]:
    counter.start_bundle()
    early = [element for batch in batches for element in counter.process(batch)]
    return early + [windowed.value for windowed in counter.finish_bundle()]


def batch(rows: int, *words: str) -> tuple[Any, ...]:
    distinct, counts = np.unique(np.array([word.encode() for word in words], object), return_counts=True)
    return np.array([rows]), distinct, counts.astype(np.int64)


def test_bundles_are_merged_by_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "recordmill.pipeline.build.beam.vocabularies.FLUSH_WORDS", 3
    )  # the second batch makes a bundle of its own
    elements = flushed(CountWords(1), [batch(2, "a", "b"), batch(1, "a", "c", "d"), batch(4, "d")])
    options = [VocabularyOptions("v", top_k=3)]
    groups = {bucket: [value for of, value in elements if of == bucket] for bucket in range(BUCKETS)}
    assert {len(values) for values in groups.values()} == {2}
    merged = [merge_bucket(group, options) for group in groups.items()]
    (path,) = write_vocabularies(None, merged, options, str(tmp_path), str(tmp_path))
    assert Path(path).read_bytes() == b"d\na\nc\n"
    statistics = {"v": {"words": 3, "distinct": 4, "tokens": 6, "known_tokens": 5}}
    assert read_report(str(tmp_path), "vocabularies") == {"rows": 7, "vocabularies": statistics}


def test_given_words_keep_their_order(tmp_path: Path) -> None:
    options = [VocabularyOptions("v", given=("z", "ü", "a"))]
    merged = [merge_bucket(pair, options) for pair in {0: [(3, [([b"a", b"z"], [2, 1])])]}.items()]
    (path,) = write_vocabularies(None, merged, options, str(tmp_path), str(tmp_path))
    assert Path(path).read_bytes() == "z\nü\na\n".encode()
    statistics = {"v": {"words": 3, "distinct": 2, "tokens": 3, "known_tokens": None}}
    assert read_report(str(tmp_path), "vocabularies") == {"rows": 3, "vocabularies": statistics}


def test_a_repeated_write_takes_another_folder(tmp_path: Path) -> None:
    options = [VocabularyOptions("v", given=("a",))]
    paths = [write_vocabularies(None, [], options, str(tmp_path), str(tmp_path))[0] for _ in range(2)]
    assert len(set(paths)) == 2
    assert {Path(path).read_bytes() for path in paths} == {b"a\n"}
