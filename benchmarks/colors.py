"""Measures colours by profiles: how far stored pixels are from LittleCMS's, and what an image costs.

    python benchmarks/colors.py china.jpg flower.jpg --cmyk default_cmyk.icc

Each photo is taken as sRGB, written as JPEG of quality 95 in another space with its profile, and stored at its own size
as PNG and as JPEG. The reference is LittleCMS on the pixels that Pillow decodes; the control is the same photo in sRGB
without a profile. CPU is in milliseconds, the median of `--runs`: the search for a profile, all before the graph, the
graph's decoding of that, and the graph of an image of 224 × 224.
"""

import argparse
import io
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from PIL import Image, ImageCms

from recordmill.pipeline.build.images.transcode import as_jpeg, decodable
from recordmill.pipeline.spec.features.image import Image as Feature
from recordmill.transforms.contract.color_profile import PRIMARIES, SRGB_CURVE, foreign_profile, made_profile
from recordmill.transforms.tensorflow.image import stored_image

SIDE, MAX_PIXELS = 224, {"max_pixels": 64_000_000, "compress": False}
INTENT, FLAGS = ImageCms.Intent.RELATIVE_COLORIMETRIC, ImageCms.Flags.BLACKPOINTCOMPENSATION
SRGB = ImageCms.createProfile("sRGB")
Pixels = npt.NDArray[np.float64]


def spaces(cmyk: Path | None) -> dict[str, bytes]:
    """Returns the profiles by their names."""
    curves = {"Display P3": SRGB_CURVE, "Adobe RGB": (563 / 256, 1, 0, 0, 0), "ProPhoto RGB": (1.8, 1, 0, 0, 0)}
    made = {name: made_profile(PRIMARIES[name], curve) for name, curve in curves.items()}
    return made | ({"CMYK": cmyk.read_bytes()} if cmyk else {})


def changed(image: Image.Image, profile: bytes, mode: str, *, back: bool) -> Image.Image:
    """Brings an image from sRGB into a profile's space, or back, by LittleCMS."""
    other = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    source, goal = (other, SRGB) if back else (SRGB, other)
    result = ImageCms.profileToProfile(image, source, goal, INTENT, mode, flags=FLAGS)
    assert result is not None
    return result


def pixels(image: bytes | Image.Image) -> Pixels:
    """Returns an image's pixels."""
    return np.asarray(Image.open(io.BytesIO(image)) if isinstance(image, bytes) else image, np.float64)


def stored(data: bytes, **options: Any) -> Pixels:
    """Returns the pixels as a reader decodes them."""
    image = Feature(kind="image", **options).options()
    return pixels(as_jpeg(stored_image(tf.constant(decodable(data, MAX_PIXELS)), image)[""].numpy(), image))


def differences(photo: Image.Image, profile: bytes, mode: str) -> tuple[bytes, list[float]]:
    """Returns the photo in another space, and mean differences in levels: ignored, stored as PNG, as JPEG, control."""
    file, own = io.BytesIO(), io.BytesIO()
    photo.save(own, "JPEG", quality=95, subsampling="4:4:4")
    changed(photo, profile, mode, back=False).save(file, "JPEG", quality=95, subsampling="4:4:4", icc_profile=profile)
    data, decoded = file.getvalue(), Image.open(file)
    truth = pixels(changed(decoded, profile, "RGB", back=True))
    found = (pixels(decoded.convert("RGB")), stored(data, store="png", fit="none"), stored(data, fit="none"))
    again = io.BytesIO()
    Image.open(own).save(again, "JPEG", quality=95)
    control = np.abs(pixels(again.getvalue()) - pixels(own.getvalue())).mean()
    return data, [*(float(np.abs(each - truth).mean()) for each in found), float(control)]


def mean_cost(action: Callable[[Any], object], files: list[Any], runs: int) -> float:
    """Returns the milliseconds of CPU that a file takes: the median of some runs over all files."""
    times = list[float]()
    for _ in range(runs):
        start = time.thread_time()
        for data in files:
            action(data)
        times.append(1e3 * (time.thread_time() - start) / len(files))
    return statistics.median(times)


def main(arguments: list[str]) -> None:
    """Prints a line for each space, and the cost of photos without a profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", nargs="+", type=Path)
    parser.add_argument("--cmyk", type=Path)
    parser.add_argument("--runs", type=int, default=25)
    given = parser.parse_args(arguments)
    photos = [Image.fromarray(np.asarray(Image.open(path).convert("RGB"))) for path in given.photos]
    for name, profile in spaces(given.cmyk).items():
        photos_in = [differences(photo, profile, name if name == "CMYK" else "RGB") for photo in photos]
        ignored, png, jpeg, control = np.mean([found for _, found in photos_in], 0)
        files = [data for data, _ in photos_in]
        look = mean_cost(lambda data: foreign_profile(data, "JPEG"), files, given.runs)
        load = mean_cost(lambda data: decodable(data, MAX_PIXELS), files, given.runs)
        ready = [tf.constant(decodable(data, MAX_PIXELS)) for data in files]
        graph = mean_cost(tf.io.decode_png, ready, given.runs)
        levels = f"ignored {ignored:.2f}, png {png:.2f}, jpeg {jpeg:.2f}, control {control:.2f} levels"
        print(f"{name}: {levels}; look {look:.3f}, load {load:.1f}, decode {graph:.1f} ms")
    plain = [path.read_bytes() for path in given.photos]
    look = mean_cost(lambda data: foreign_profile(data, "JPEG"), plain, given.runs)
    graph = mean_cost(lambda data: stored(data, size=(SIDE, SIDE)), plain, given.runs)
    print(f"no profile: look {look:.4f} ms of {graph:.2f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
