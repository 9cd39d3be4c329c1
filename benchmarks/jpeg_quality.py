"""Compares the bytes and the PSNR of stored JPEGs by `quality` and `chroma`, and those of JPEGs that are encoded twice.

    python benchmarks/jpeg_quality.py               photos made from nothing
    python benchmarks/jpeg_quality.py a.jpg b.jpg   real ones

Each photo is scaled to 224 x 224. The PSNR is that of the stored pixels against the scaled ones, as a PNG holds them;
`levels` is the greatest difference of a pixel's channel. The second table stores a JPEG of 224 x 224 again.
"""

import io
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from photos import photo
from PIL import Image as Picture

from recordmill.pipeline.spec.features.image import Image
from recordmill.transforms.tensorflow.image import stored_image

SIZE = (224, 224)
PHOTOS = 20
Pixels = npt.NDArray[np.uint8]


def stored(data: bytes, **keys: object) -> bytes:
    """Stores an image at its size."""
    options = Image.model_validate({"kind": "image", "size": SIZE, "fit": "crop", "store": "jpeg", **keys}).options()
    encoded: bytes = stored_image(tf.constant(data), options)[""].numpy()
    return encoded


def pixels(data: bytes) -> Pixels:
    """Decodes an image."""
    return np.asarray(Picture.open(io.BytesIO(data)).convert("RGB"))


def row(name: str, files: list[bytes], truth: list[Pixels]) -> str:
    """A row of the table: the means over all photos, and the greatest difference."""
    errors = [pixels(data).astype(float) - exact for data, exact in zip(files, truth, strict=True)]
    psnr = np.mean([10 * np.log10(255**2 / max(float(np.mean(error**2)), 1e-9)) for error in errors])
    size = sum(map(len, files)) / len(files)
    how_near = f"{psnr:.1f} dB" if psnr < 100 else "the same"
    return f"| {name} | {size / 1e3:.1f} kB | {how_near} | {max(np.abs(error).max() for error in errors):.0f} |"


def main() -> None:
    """Prints a table."""
    photos = [Path(path).read_bytes() for path in sys.argv[1:]] or [photo(index) for index in range(PHOTOS)]
    truth = [pixels(stored(data, store="png")) for data in photos]
    print("| stored as | bytes | PSNR | levels |\n|---|---|---|---|")
    for chroma in ("4:2:0", "4:4:4"):
        for quality in (75, 85, 90, 95, 98):
            files = [stored(data, quality=quality, chroma=chroma) for data in photos]
            print(row(f"`quality: {quality}, chroma: {chroma}`", files, truth))
    first = [stored(data, quality=85) for data in photos]
    kept = [pixels(data) for data in first]
    print("\nA JPEG of quality 85 that fits, against its own pixels:\n")
    print(row("its bytes", first, kept))
    print(row("encoded again at 95", [again(data) for data in first], kept))


def again(data: bytes) -> bytes:
    """Encodes the pixels of a JPEG once more, as is done with one that does not fit."""
    file = io.BytesIO()
    Picture.fromarray(pixels(data)).save(file, "PNG")
    return stored(file.getvalue())


if __name__ == "__main__":
    main()
