"""NVIDIA DALI without a GPU, over TFRecord files with their index: its decoder opens the random part alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvidia.dali import fn, pipeline_def, tfrecord, types
from settings import MEAN, SIDE, STD, Batch, Settings

WORKERS = 2
SHUFFLE = 4096
FEATURES = {
    "image": tfrecord.FixedLenFeature((), tfrecord.string, ""),
    "label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
}


@pipeline_def  # type: ignore[untyped-decorator]
def crops(files: list[str], indices: list[str], dtype: str) -> tuple[Any, Any]:
    """Reads, shuffles, decodes, scales and flips."""
    rows = fn.readers.tfrecord(
        path=files, index_path=indices, features=FEATURES, random_shuffle=True, initial_fill=SHUFFLE
    )
    pixels = fn.decoders.image_random_crop(rows["image"], random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
    pixels = fn.resize(pixels, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=False)
    flips = fn.random.coin_flip()
    if dtype == "uint8":
        return fn.flip(pixels, horizontal=flips), rows["label"]
    scales = {"mean": [255 * each for each in MEAN], "std": [255 * each for each in STD]}
    return fn.crop_mirror_normalize(pixels, mirror=flips, output_layout="HWC", **scales), rows["label"]


def batches(data: Path, settings: Settings) -> Iterator[Batch]:
    """Yields batches without end, each in memory of its own, as DALI's iterators for frameworks do."""
    files = sorted(map(str, (data / "tfds" / "image" / "1.0.0").glob("*.tfrecord*")))
    indices = [str(data / "tfrecord_index" / Path(file).name) for file in files]
    options = {"batch_size": settings.batch_size, "num_threads": settings.workers, "seed": settings.seed}
    pipeline = crops(files, indices, settings.dtype, device_id=None, **options)
    while True:
        pixels, labels = pipeline.run()
        yield pixels.as_array(), labels.as_array().ravel()
