"""Anchor: stock tf.Transform as its documents show it, on the runner that Recordmill pins.

python benchmarks/anchors/text_stock.py documents.jsonl OUT
"""

import json
import sys
import tempfile
from pathlib import Path

import apache_beam as beam
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

VOCABULARY = 4000
SHARDS = 8
COLUMNS = ("id", "language", "text")
NO_WORD = r"[^\p{L}\p{M}\p{N}_]+"


def preprocessing_fn(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Makes ids of the words and of the language."""
    lower = tf.strings.lower(inputs["text"], encoding="utf-8")
    words = tf.strings.split(tf.strings.regex_replace(lower, NO_WORD, " ")).to_sparse()
    return {
        "text": tft.compute_and_apply_vocabulary(words, top_k=VOCABULARY),
        "language": tft.compute_and_apply_vocabulary(inputs["language"]),
        "key": inputs["id"],
    }


def parse(line: str) -> dict[str, str]:
    """Reads one document."""
    row = json.loads(line)
    return {name: row[name] for name in COLUMNS}


def main(path: Path, out: Path) -> None:
    """Analyzes, transforms and writes in one pipeline."""
    out.mkdir(parents=True)
    schema = schema_utils.schema_from_feature_spec({name: tf.io.FixedLenFeature([], tf.string) for name in COLUMNS})
    options = PipelineOptions(["--direct_running_mode=in_memory"])
    with (
        tempfile.TemporaryDirectory() as scratch,
        beam.Pipeline(runner=FnApiRunner(), options=options) as pipeline,
        tft_beam.Context(temp_dir=scratch),
    ):
        documents = pipeline | beam.io.ReadFromText(str(path)) | beam.Map(parse)
        dataset = documents, dataset_metadata.DatasetMetadata(schema)
        (transformed, metadata), _ = dataset | tft_beam.AnalyzeAndTransformDataset(preprocessing_fn)
        coder = tft.coders.ExampleProtoCoder(metadata.schema)
        _ = transformed | beam.Map(coder.encode) | beam.io.WriteToTFRecord(str(out / "documents"), num_shards=SHARDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
