"""Writes labelled rows as TFRecord files, as a dataset of TensorFlow Datasets, and as ArrayRecord files for Grain."""

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

Writer = Callable[[Path, Any], None]


def example(name: str, value: tf.train.Feature, label: int) -> bytes:
    """Makes a `tf.train.Example` of one feature and a label."""
    number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
    features = tf.train.Features(feature={name: value, "label": number})
    return bytes(tf.train.Example(features=features).SerializeToString())


def write_tfrecord(folder: Path, shard: int, records: Iterable[bytes]) -> None:
    """Writes one TFRecord file."""
    with tf.io.TFRecordWriter(str(folder / f"{shard:05d}.tfrecord")) as writer:
        for record in records:
            writer.write(record)


def photos_tfrecord(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes JPEGs."""
    for shard in range(SHARDS):
        rows = ((tf.train.BytesList(value=[path.read_bytes()]), label) for path, label in photos[shard::SHARDS])
        write_tfrecord(folder, shard, (example("image", tf.train.Feature(bytes_list=v), label) for v, label in rows))


def photos_array_record(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes JPEGs, each behind its label in 8 bytes."""
    for shard in range(SHARDS):
        writer = ArrayRecordWriter(str(folder / f"{shard:05d}.array_record"), SINGLE_RECORDS)
        for path, label in photos[shard::SHARDS]:
            writer.write(np.int64(label).tobytes() + path.read_bytes())
        writer.close()


def photos_tfds(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes JPEGs; TensorFlow Datasets takes a file as it is."""
    image = tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg")
    tfds.dataset_builders.store_as_tfds_dataset(
        name="image",
        version="1.0.0",
        data_dir=folder,
        features=tfds.features.FeaturesDict({"image": image, "label": tfds.features.ClassLabel(num_classes=LABELS)}),
        split_datasets={"train": list(enumerate({"image": str(path), "label": label} for path, label in photos))},
    )


def documents_tfrecord(folder: Path, documents: Documents) -> None:
    """Writes ids."""
    for shard in range(SHARDS):
        rows = documents.rows(shard, SHARDS)
        texts = ((tf.train.Feature(int64_list=tf.train.Int64List(value=ids)), label) for ids, label in rows)
        write_tfrecord(folder, shard, (example("text", text, label) for text, label in texts))


def rows_tfrecord(folder: Path, rows: Iterable[tuple[bytes, Any]]) -> None:
    """Writes packed rows: ids as int32 in bytes, and the lengths of their texts."""
    with tf.io.TFRecordWriter(str(folder / "packed.tfrecord")) as writer:
        for ids, lengths in rows:
            text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[ids]))
            of_texts = tf.train.Feature(int64_list=tf.train.Int64List(value=lengths))
            features = tf.train.Features(feature={"text": text, "text_lengths": of_texts})
            writer.write(tf.train.Example(features=features).SerializeToString())


PHOTOS: dict[str, Writer] = {
    "tfrecord": photos_tfrecord,
    "array_record": photos_array_record,
    "tfds": photos_tfds,
}
DOCUMENTS: dict[str, Writer] = {"tfrecord": documents_tfrecord}
