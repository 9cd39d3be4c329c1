"""Anchor: the bare tf.data loop that a person writes by hand: JPEG, resized to 224×224, encoded again, one TFRecord.

python benchmarks/anchors/image_loop.py FOLDER OUT
"""

import os
import sys
from pathlib import Path

import tensorflow as tf

SIZE = (224, 224)
BATCH_ROWS = 32


def resize(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads, decodes, resizes by area averaging and encodes one image."""
    pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")
    small = tf.image.resize(pixels, SIZE, method="area")
    return tf.io.encode_jpeg(tf.cast(tf.round(small), tf.uint8), quality=95), label


def example(image: bytes, label: int) -> bytes:
    """Serializes one record."""
    record = tf.train.Example()
    record.features.feature["image"].bytes_list.value.append(image)
    record.features.feature["label"].int64_list.value.append(label)
    serialized: bytes = record.SerializeToString()
    return serialized


def main(folder: Path, out: Path) -> None:
    """Writes all images of the class folders to one file."""
    out.mkdir(parents=True)
    paths = sorted(folder.glob("*/*.jpg"))
    classes = {name: index for index, name in enumerate(sorted({path.parent.name for path in paths}))}
    rows = [str(path) for path in paths], [classes[path.parent.name] for path in paths]
    batches = tf.data.Dataset.from_tensor_slices(rows).map(resize, num_parallel_calls=os.cpu_count())
    with tf.io.TFRecordWriter(str(out / "images.tfrecord")) as writer:
        for images, labels in batches.batch(BATCH_ROWS).prefetch(2):
            for image, label in zip(images.numpy(), labels.numpy(), strict=True):
                writer.write(example(image, int(label)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
