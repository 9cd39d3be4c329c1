"""What `dct_scaling` saves and what it changes: CPU an image with and without, and the PSNR between the two.

    python benchmarks/dct_scaling.py               photos made from nothing
    python benchmarks/dct_scaling.py a.jpg b.jpg   real ones

The whole way of an image is measured: decoded, scaled to 224 x 224, stored as JPEG, in one thread. The PSNR is that of
the scaled pixels before they are encoded; the ratio is what libjpeg divided the sides by.
"""

import io
import os
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from photos import photo
from PIL import Image as Picture

from recordmill.pipeline.spec.features.image import Image
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.tensorflow.image import stored_image
from recordmill.transforms.tensorflow.image_decode import decode, resize

SIZE = (224, 224)
RUNS = 5
SECONDS = 2.0  # of CPU, about, for each run
GRAIN = 3.0  # grey levels, of a sensor: makes 4000 x 3000 pixels some 3 MB


def large_photo(width: int, height: int) -> bytes:
    """One photo of any size."""
    small = Picture.open(io.BytesIO(photo(0)))
    pixels = np.asarray(small.resize((width, height), Picture.Resampling.BICUBIC), np.float32)
    pixels = pixels + np.random.default_rng(0).standard_normal(pixels.shape, np.float32) * GRAIN
    file = io.BytesIO()
    Picture.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=92)
    return file.getvalue()


def cpu(encoded: tf.Tensor, dct_scaling: bool) -> float:
    """Measures the CPU milliseconds of one image, the least of several runs."""
    options = options_of(dct_scaling)
    graph = tf.function(lambda data: stored_image(data, options)[""], autograph=False)
    started = time.process_time()
    graph(encoded)  # traced here
    graph(encoded)
    times = max(1, int(SECONDS / max(time.process_time() - started, 0.002)))
    found = []
    for _ in range(RUNS):
        started = time.process_time()
        for _ in range(times):
            graph(encoded)
        found.append((time.process_time() - started) / times)
    return min(found) * 1e3


def options_of(dct_scaling: bool) -> ImageOptions:
    """The options that are measured."""
    return Image(kind="image", size=SIZE, fit="stretch", store="jpeg", dct_scaling=dct_scaling).options()


def compare(name: str, data: bytes) -> str:
    """A row of the table."""
    encoded = tf.constant(data)
    width, height = Picture.open(io.BytesIO(data)).size
    full, reduced = (resize(decode(encoded, each), each).numpy() for each in (options_of(False), options_of(True)))
    ratio = max(width, height) // max(decode(encoded, options_of(True)).shape[:2])
    error = np.mean((full.astype(float) - reduced) ** 2)
    psnr = f"{10 * np.log10(255**2 / error):.1f} dB" if error else "the same"
    without, with_it = cpu(encoded, False), cpu(encoded, True)
    cells = [name, f"{width} x {height}", f"{len(data) / 1e3:.0f} kB", f"1/{ratio}", f"{without:.2f} ms"]
    return f"| {' | '.join([*cells, f'{with_it:.2f} ms', psnr])} |"


def main() -> None:
    """Prints a table."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    made = {f"made {width}": large_photo(width, height) for width, height in ((4000, 3000), (1920, 1080), (1280, 960))}
    files = {os.path.basename(path): Path(path).read_bytes() for path in sys.argv[1:]}
    print("| photo | pixels | file | reduced to | CPU without | with | PSNR |\n|---|---|---|---|---|---|---|")
    for name, data in (files or {**made, "made 500": photo(0)}).items():
        print(compare(name, data), flush=True)


if __name__ == "__main__":
    main()
