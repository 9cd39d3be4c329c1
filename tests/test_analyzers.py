"""The analyzers in small pipelines: stock tf.Transform's order of words, exact moments, and nothing at all."""

import random
import tempfile
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

from pipeline.analyzers import BUCKETS, BeamAnalyzers, CountWords, VocabularyOptions, merge_bucket, write_vocabularies
from pipeline.reports import read_report
from transforms.preprocessing import PIXEL_COLUMNS, Preprocessing

pytestmark = pytest.mark.slow
WORDS = ["the"] * 50 + ["b", "a", "ü", "鳥", "", "a b", "naïve", "na", "🙂"] * 3 + ["x\ny", "z\r", "\n", "Z", "~"]
Rows = list[dict[str, Any]]


def analyze(rows: Rows, types: dict[str, Any], preprocessing: Callable[..., Any], folder: Path) -> tft.TFTransformOutput:
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


@pytest.mark.parametrize(("top_k", "minimum"), [(None, 1), (4, 1), (None, 2)])
def test_words_come_in_the_order_of_stock_tensorflow_transform(
    tmp_path: Path, top_k: int | None, minimum: int
) -> None:
    ours = analyzers(tmp_path, VocabularyOptions("words", top_k, minimum))

    def preprocessing(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        words, train = inputs["words"], inputs["train"]
        stock = tft.vocabulary(words, top_k=top_k, frequency_threshold=minimum, vocab_filename="stock")
        mine = ours.vocabularies({"words": words}, train > 0)["words"]
        return {name: tft.apply_vocabulary(words, path) for name, path in (("stock", stock), ("ours", mine))}

    words = random.Random(1).sample(WORDS, len(WORDS))
    scalar = tf.io.FixedLenFeature([], tf.string), tf.io.FixedLenFeature([], tf.int64)
    types = dict(zip(("words", "train"), scalar, strict=True))
    output = analyze([{"words": word, "train": 1} for word in words], types, preprocessing, tmp_path)
    stock = Path(output.vocabulary_file_by_name("stock")).read_bytes()
    assert Path(output.vocabulary_file_by_name("words.vocabulary.txt")).read_bytes() == stock
    assert stock.startswith(b"the\n")
