"""tf.Transform's own classes read a version: their schema parses shards to the records' values.

The other side is protocol buffers, vocabulary lines and raw rows, without our reader.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from recordmill.pipeline.build.run_options import Published
from tests.every_kind import raw_rows
from tests.test_training_equals_serving import COLUMNS

pytestmark = pytest.mark.slow
IDS = {"label": 4, "given": 3, "hashed": 10, "crossed": 12, "bytes": 258, "bucket": 7, "gap_missing": 2, "text": 14}
LEARNED = "shared open category tags hot maybe captions pieces wordpieces folded letters missing_missing".split()
"""The features of ids: with their number where the spec says it, and those whose words decide."""
IMAGES = ("image", "frames", "missing", "jpeg", "png", "pixels", "original", "any_size")


@pytest.fixture(scope="module")
def output(every_kind: tuple[Path, Published]) -> tft.TFTransformOutput:
    return tft.TFTransformOutput(every_kind[1].folder)


@pytest.fixture(scope="module")
def records(every_kind: tuple[Path, Published]) -> list[bytes]:
    files = sorted(Path(every_kind[1].folder).glob("kinds-*.tfrecord-*"))
    return [record.numpy() for record in tf.data.TFRecordDataset(list(map(str, files))).shard(5, 0)]


def stored(record: bytes) -> dict[str, list[Any]]:
    """Returns a record's values by feature, from protocol buffers."""
    features = tf.train.Example.FromString(record).features.feature
    kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
    return {name: [*getattr(features[name], kind).value] if kind else [] for name, kind in kinds.items()}


def rows_of(tensors: dict[str, Any]) -> Iterator[dict[str, list[Any]]]:
    """Returns each row's values from parsed or transformed tensors."""
    lists = {name: tensor.to_list() if hasattr(tensor, "to_list") else tensor for name, tensor in tensors.items()}
    for row in range(len(next(iter(lists.values())))):
        yield {name: np.ravel(each[row]).tolist() for name, each in lists.items()}


def test_the_shards_are_parsed_to_what_they_store(output: tft.TFTransformOutput, records: list[bytes]) -> None:
    spec = output.transformed_feature_spec()
    parsed = list(rows_of(tf.io.parse_example(records, spec)))
    for record, row in zip(records, parsed, strict=True):
        expected = stored(record)
        assert expected.pop("key")
        assert row == expected
    assert all(any(row[name] for row in parsed) for name in spec), "no feature is empty in all records"


def test_ids_have_domains(output: tft.TFTransformOutput, records: list[bytes]) -> None:
    sizes = {name: output.num_buckets_for_transformed_feature(name) for name in output.transformed_domains()}
    assert sizes.keys() == {*IDS, *LEARNED}
    assert sizes.items() >= IDS.items()
    for name, size in sizes.items():
        ids = [id_ for record in records for id_ in stored(record)[name]]
        assert 0 <= min(ids) <= max(ids) < size


def test_vocabularies_are_found_by_their_features_and_files(
    output: tft.TFTransformOutput, every_kind: tuple[Path, Published]
) -> None:
    features = every_kind[1].manifest.features
    files = {name: feature["vocabulary"] for name, feature in features.items() if "vocabulary" in feature}
    assert {"text", "shared", "given", "pieces", "captions", "label"} <= files.keys()
    for name, file in files.items():
        lines = Path(every_kind[1].folder, file).read_bytes().removesuffix(b"\n").split(b"\n")
        for called in (name, file.rpartition("/")[2]):
            assert output.vocabulary_by_name(called) == lines
            assert output.vocabulary_size_by_name(called) == len(lines)
            assert Path(str(output.vocabulary_file_by_name(called))).samefile(Path(every_kind[1].folder, file))


def example(row: dict[str, Any], spec: dict[str, Any]) -> bytes:
    """Returns a raw row as TFX's `ExampleGen` makes it."""
    columns = {feature: column for column, features in COLUMNS.items() for feature in features}
    made = tf.train.Example()
    for name, each in spec.items():
        value = row[columns[name]]
        values = value if isinstance(value, list) else [value]
        feature = made.features.feature[name]
        kind = {tf.string: feature.bytes_list, tf.int64: feature.int64_list, tf.float32: feature.float_list}[each.dtype]
        kind.value.extend(each.encode() if isinstance(each, str) else each for each in values)
    return bytes(made.SerializeToString())


def test_raw_rows_are_parsed_and_transformed_to_what_is_stored(
    output: tft.TFTransformOutput, records: list[bytes], every_kind: tuple[Path, Published]
) -> None:
    spec, raw = output.raw_feature_spec(), raw_rows(every_kind[0] / "in")
    expected = [stored(record) for record in records[:15]]
    rows = [raw[row["key"][0].decode()] for row in expected]
    parsed = tf.io.parse_example([example(row, spec) for row in rows], spec)
    assert spec.keys() == {each.name for each in output.raw_metadata.schema.feature}
    transformed = output.transform_raw_features(parsed)
    names = output.transformed_feature_spec().keys() - set(IMAGES)
    for row, wanted in zip(rows_of({name: transformed[name] for name in names}), expected, strict=True):
        assert row == {name: wanted[name] for name in names}
