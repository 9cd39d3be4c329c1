"""Writes labelled rows as TFRecord files, as datasets of TensorFlow Datasets, and as ArrayRecord files for Grain."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter
from peer_rows import SHARDS, Documents, Photo

LABELS = 7
SINGLE_RECORDS = "group_size:1,uncompressed"  # each record may be read alone, as Grain wants it, and at once

Pixels = tuple[bytes, int]
"""A picture's pixels, row by row, and its label."""
Writer = Callable[[Path, Any], None]


def example(name: str, value: tf.train.Feature, label: int) -> bytes:
    """Makes a `tf.train.Example` of one feature and a label."""
    number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    features = tf.train.Features(feature={name: value, "label": number})
    return bytes(tf.train.Example(features=features).SerializeToString())


def image_example(image: bytes, label: int) -> bytes:
    """Makes the `tf.train.Example` of a picture."""
    return example("image", tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])), label)


def write_tfrecord(folder: Path, shard: int, records: Iterable[bytes]) -> None:
    """Writes one TFRecord file."""
    with tf.io.TFRecordWriter(str(folder / f"{shard:05d}.tfrecord")) as writer:
        for record in records:
            writer.write(record)


def write_array_record(folder: Path, shard: int, rows: Iterable[tuple[bytes, int]], options: str) -> None:
    """Writes one ArrayRecord file; a record is the label in 8 bytes, then the value: nothing costs a reader less."""
    writer = ArrayRecordWriter(str(folder / f"{shard:05d}.array_record"), options)
    for value, label in rows:
        writer.write(np.int64(label).tobytes() + value)
    writer.close()


def write_tfds(folder: Path, name: str, feature: Any, rows: Iterable[dict[str, Any]]) -> None:
    """Writes a dataset of TensorFlow Datasets with one feature and a label."""
    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.FeaturesDict({name: feature, "label": tfds.features.ClassLabel(num_classes=LABELS)}),
        split_datasets={"train": list(enumerate(rows))},
    )


def photos_tfrecord(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes JPEGs."""
    for shard in range(SHARDS):
        share = photos[shard::SHARDS]
        write_tfrecord(folder, shard, (image_example(path.read_bytes(), label) for path, label in share))


def photos_array_record(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes JPEGs."""
    for shard in range(SHARDS):
        rows = ((path.read_bytes(), label) for path, label in photos[shard::SHARDS])
        write_array_record(folder, shard, rows, SINGLE_RECORDS)


def photos_tfds(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes JPEGs; TensorFlow Datasets takes a file as it is."""
    image = tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg")
    write_tfds(folder, "image", image, [{"image": str(path), "label": label} for path, label in photos])


def documents_tfrecord(folder: Path, documents: Documents) -> None:
    """Writes ids."""
    for shard in range(SHARDS):
        rows = documents.rows(shard, SHARDS)
        texts = ((tf.train.Feature(int64_list=tf.train.Int64List(value=ids)), label) for ids, label in rows)
        write_tfrecord(folder, shard, (example("text", text, label) for text, label in texts))


def documents_array_record(folder: Path, documents: Documents) -> None:
    """Writes ids, 8 bytes each."""
    for shard in range(SHARDS):
        rows = ((ids.tobytes(), label) for ids, label in documents.rows(shard, SHARDS))
        write_array_record(folder, shard, rows, SINGLE_RECORDS)


def documents_tfds(folder: Path, documents: Documents) -> None:
    """Writes ids."""
    text = tfds.features.Tensor(shape=(None,), dtype=np.int64)
    write_tfds(folder, "text", text, [{"text": ids, "label": label} for ids, label in documents.rows()])


def pixels_tfrecord(folder: Path, pictures: Sequence[Pixels]) -> None:
    """Writes pixels."""
    for shard in range(SHARDS):
        write_tfrecord(folder, shard, (image_example(pixels, label) for pixels, label in pictures[shard::SHARDS]))


def pixels_array_record(folder: Path, pictures: Sequence[Pixels]) -> None:
    """Writes pixels, uncompressed."""
    for shard in range(SHARDS):
        write_array_record(folder, shard, pictures[shard::SHARDS], SINGLE_RECORDS)


PHOTOS: dict[str, Writer] = {
    "tfrecord": photos_tfrecord,
    "array_record": photos_array_record,
    "tfds": photos_tfds,
}
DOCUMENTS: dict[str, Writer] = {
    "tfrecord": documents_tfrecord,
    "array_record": documents_array_record,
    "tfds": documents_tfds,
}
PIXELS: dict[str, Writer] = {"tfrecord": pixels_tfrecord, "array_record": pixels_array_record}
