"""Makes one task's data: Recordmill builds it, and every peer gets the same images or ids in its own format.

The peers' JPEGs are those that Recordmill stores, without the restart markers, which only Recordmill has a use for.

    python benchmarks/reader/prepare.py images bench-data/reader/images

What is there already is kept. `run.py` calls this, and then `torch_formats.py` for the other peers.
"""

import argparse
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_formats
from long_tail import write_documents
from peer_rows import Documents, once, read_photos, write_peers
from photos import write_photos
from PIL import Image
from settings import ROW_TOKENS

from recordmill import open_dataset

ROOT = Path(__file__).resolve().parents[2]
BUILD_PYTHON = ROOT / ".venv" / "bin" / "python"
PHOTOS, COPIES = 2000, 12
"""Different photos, and how often each is in the data: no pipeline comes to its epoch's end while it is measured."""
DOCUMENTS = 400_000
READ_ROWS = 4096

IMAGES = """\
name: photos
source: {{format: image_folder, path: {source}}}
splits: {{train: 100}}
features:
  image: {{kind: image, size: 256, fit: crop, store: jpeg, quality: 80, normalize: imagenet}}
  label: {{kind: category}}
label: label
"""
TEXT = """\
name: documents
source: {{format: jsonl, path: {source}}}
key: id
splits: {{train: 100}}
features:
  text: {{kind: text, tokenizer: whitespace, vocabulary: 19_998}}
  label: {{kind: category}}
label: label
"""
PACKED = """\
name: packed
source: {{format: jsonl, path: {source}}}
key: id
splits: {{train: 100}}
features:
  text: {{kind: text, tokenizer: whitespace, vocabulary: 19_998, pack: {length}}}
"""


def built(output: Path, spec: str) -> Path:
    """Builds a dataset with this project's own environment."""

    def build(partial: Path) -> None:
        partial.mkdir()
        file = output.with_suffix(".yaml")
        file.write_text(spec, encoding="utf-8")
        subprocess.run(
            [BUILD_PYTHON, "-m", "recordmill", "build", file, "--quiet", "--output", partial], cwd=ROOT, check=True
        )

    once(output, build)
    return output


def linked_photos(folder: Path) -> Path:
    """Makes a folder of photos, each `COPIES` times, in class folders; copies are links."""
    photos = folder / f"photos-{PHOTOS}"
    once(photos, lambda path: write_photos(path, PHOTOS))

    def link(partial: Path) -> None:
        for file in photos.glob("*/*.jpg"):
            (partial / file.parent.name).mkdir(parents=True, exist_ok=True)
            for copy in range(COPIES):
                os.link(file, partial / file.parent.name / f"{file.stem}-{copy}.jpg")

    linked = folder / f"photos-{PHOTOS}x{COPIES}"
    once(linked, link)
    return linked


def records(output: Path, features: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Gives the records that a build stored, many at a time."""
    shards = sorted(map(str, output.glob("versions/*/*.tfrecord*")))
    data = [shard for shard in shards if not shard.endswith(".index")]
    if not data:
        raise FileNotFoundError(f"{output} has no shards: remove the folder, and it is built again")
    rows = tf.data.TFRecordDataset(data).batch(READ_ROWS)
    yield from rows.map(lambda batch: tf.io.parse_example(batch, features))


def pictures(output: Path) -> Iterator[tuple[bytes, int]]:
    """Gives each stored picture's bytes and label."""
    features = {name: tf.io.FixedLenFeature([], kind) for name, kind in (("image", tf.string), ("label", tf.int64))}
    for row in records(output, features):
        yield from zip(row["image"].numpy(), row["label"].numpy().tolist(), strict=True)


@cache
def without_markers(jpeg: bytes) -> bytes:
    """Encodes a JPEG again, with the same tables and without restart markers; copies of a photo cost nothing."""
    file = io.BytesIO()
    Image.open(io.BytesIO(jpeg)).save(file, "JPEG", quality="keep")
    return file.getvalue()


def images(folder: Path) -> None:
    """Makes square JPEGs."""
    output = built(folder / "recordmill", IMAGES.format(source=linked_photos(folder.parent)))

    def extract(partial: Path) -> None:
        for number, (jpeg, label) in enumerate(pictures(output)):
            (partial / str(label)).mkdir(parents=True, exist_ok=True)
            (partial / str(label) / f"{number:06d}.jpg").write_bytes(without_markers(jpeg))

    once(folder / "jpegs", extract)
    write_peers(folder, tf_formats.PHOTOS, read_photos(folder))

    def adopt(partial: Path) -> None:
        given = str(folder / "tfds" / "image" / "1.0.0")
        command = [str(BUILD_PYTHON), "-m", "recordmill", "adopt", given, "--output", str(partial)]
        subprocess.run([*command, "--name", "photos", "--quiet"], cwd=ROOT, check=True)

    once(folder / "recordmill_adopted", adopt)
    for file in sorted(folder.glob("tfds/image/1.0.0/*.tfrecord*")):
        once(folder / "tfrecord_index" / file.name, partial(_index, file))


def _index(file: Path, index: Path) -> None:
    """Writes the index that the package `tfrecord` reads."""
    subprocess.run([sys.executable, "-m", "tfrecord.tools.tfrecord2idx", file, index], check=True, stdout=sys.stderr)


def text(folder: Path) -> None:
    """Makes the documents."""
    source, arrays = folder / "documents.jsonl", folder / "arrays"
    once(source, lambda path: write_documents(path, DOCUMENTS))
    output = built(folder / "recordmill", TEXT.format(source=source))
    rows = built(folder / "recordmill_packed", PACKED.format(source=source, length=ROW_TOKENS))
    once(arrays, lambda path: stored_documents(output).save(path))
    write_peers(folder, tf_formats.DOCUMENTS, Documents.load(arrays))
    write_peers(folder, {"packed": tf_formats.rows_tfrecord}, packed_rows(rows))


def stored_documents(output: Path) -> Documents:
    """Gives the documents that a build stored."""
    text = tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)
    rows = [
        (row["text"].flat_values.numpy(), row["text"].row_lengths().numpy(), row["label"].numpy())
        for row in records(output, {"text": text, "label": tf.io.FixedLenFeature([], tf.int64)})
    ]
    ids, lengths, labels = (np.concatenate(column) for column in zip(*rows, strict=True))
    return Documents(ids, np.concatenate([[0], np.cumsum(lengths)]), labels)


def packed_rows(output: Path) -> Iterator[tuple[bytes, Any]]:
    """Yields each packed row's ids, int32, and the lengths of its texts."""
    given = open_dataset(output).training_input("train", batch_size=READ_ROWS, shuffle="none", drop_remainder=False)
    for batch in given.as_numpy():
        for ids, segments in zip(batch["text"].astype("<i4"), batch["text_segments"], strict=True):
            lengths = np.bincount(segments)[1:]
            yield ids[: lengths.sum()].tobytes(), lengths


TASKS: dict[str, Callable[[Path], None]] = {"images": images, "text": text}


def main() -> None:
    """Reads the command line and makes the data."""
    parser = argparse.ArgumentParser(description="Makes the data of the reader's benchmark.")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("folder", type=Path, help="the task's own folder; the photos lie beside it")
    options = parser.parse_args()
    TASKS[options.task](options.folder.resolve())


if __name__ == "__main__":
    main()
