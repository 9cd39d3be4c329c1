"""Measures an image's CPU step by step, each beside the bare tf.data loop's own work, in turns; prints Markdown.

    python benchmarks/build_steps.py --runs 7

Two threads work on batches of 32 photos, as a build's do.
"""

import argparse
import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from inputs import Inputs
from measure import ROOT, table

sys.path.insert(0, str(ROOT))

from recordmill.pipeline.build.runners.worker_environment import TENSORFLOW

os.environ |= TENSORFLOW

import tensorflow as tf

from recordmill.pipeline.build.images.read import give_back_large_blocks
from recordmill.pipeline.build.images.transcode import as_jpeg
from recordmill.pipeline.build.worker.build_shard import encode
from recordmill.pipeline.dataset.tfrecord import frame
from recordmill.pipeline.spec.model import load_spec
from recordmill.transforms.base.graph import Context, Statistics
from recordmill.transforms.base.stored import UNENCODED
from recordmill.transforms.images.image_graph import prepare
from recordmill.transforms.images.image_header import check_header
from recordmill.transforms.images.image_spec import Image

ROWS, BATCHES, THREADS = 32, 3, 2
Step = Callable[[int], object]


def bare(encoded: tf.Tensor) -> tf.Tensor:
    """Decodes, resizes and encodes as `anchors/image_loop.py` does."""
    pixels = tf.io.decode_jpeg(encoded, channels=3, dct_method="INTEGER_ACCURATE")
    small = tf.round(tf.image.resize(pixels, (224, 224), method="area"))
    return tf.io.encode_jpeg(tf.cast(small, tf.uint8), quality=95)


def steps(photos: list[str], options: Image) -> dict[str, Step]:
    """Makes the steps; each takes the number of a batch."""
    paths = [photos[ROWS * batch : ROWS * (batch + 1)] for batch in range(BATCHES)]
    files = [[_read(path) for path in batch] for batch in paths]
    signature = [tf.TensorSpec([None], tf.string)]
    loop = tf.function(partial(tf.map_fn, bare, fn_output_signature=tf.string), input_signature=signature)

    def pixels_of(column: tf.Tensor) -> tf.Tensor:
        return prepare(options, column, Context()).store(Statistics())[UNENCODED]

    graph = tf.function(pixels_of, input_signature=signature, autograph=False)
    tensors = [tf.constant(batch) for batch in files]
    pixels = [graph(batch).numpy().tolist() for batch in tensors]
    images = [[as_jpeg(each, options) for each in batch] for batch in pixels]
    keys = [b"key"] * ROWS
    return {
        "bare: decode, resize, encode": lambda batch: loop(tensors[batch]).numpy(),
        "graph: decode, resize": lambda batch: graph(tf.constant(files[batch])).numpy().tolist(),
        "encode with markers": lambda batch: [as_jpeg(each, options) for each in pixels[batch]],
        "read": lambda batch: [_read(path) for path in paths[batch]],
        "header check": lambda batch: [check_header(each, options.max_pixels) for each in files[batch]],
        "SHA-256 of the file": lambda batch: [hashlib.sha256(each).digest() for each in files[batch]],
        "Example": lambda batch: encode(keys, {"image": tf.constant(images[batch])}),
        "frame, SHA-256 of the shard": lambda batch: [hashlib.sha256(frame(each)) for each in images[batch]],
    }


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def cost(step: Step) -> float:
    """Gives the milliseconds of CPU that a step takes of an image, in two threads."""
    started = time.process_time()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(step, range(BATCHES)))
    return (time.process_time() - started) / (ROWS * BATCHES) * 1e3


def main() -> None:
    """Measures and prints the medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    inputs = Inputs(ROOT / "bench-data")
    folder = inputs.photos(ROWS * BATCHES)
    image = load_spec(str(inputs.image_spec(folder))).features["image"]
    assert isinstance(image, Image)
    give_back_large_blocks()
    all_steps = steps([str(path) for path in sorted(folder.glob("*/*.jpg"))], image)
    first, *ours = all_steps
    rows: dict[str, list[float]] = {name: [] for name in (*all_steps, "ours together")}
    for _ in range(runs):
        costs = {name: cost(step) for name, step in all_steps.items()}
        costs["ours together"] = sum(costs[name] for name in ours)
        for name, each in costs.items():
            rows[name].append(each)
    ratios = {
        name: statistics.median(a / b for a, b in zip(costs, rows[first], strict=True)) for name, costs in rows.items()
    }
    table(
        "An image's CPU, step by step",
        ("step", "ms", "of the bare loop's"),
        [(name, f"{statistics.median(costs):.3f}", f"{ratios[name]:.2f}") for name, costs in rows.items()],
    )


if __name__ == "__main__":
    main()
