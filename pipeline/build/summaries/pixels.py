"""Mean and variance of images' pixels by channel, of a sample of the train split, by whole numbers."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.context.reports import reject_row
from recordmill.pipeline.build.images.read import PixelMeter, image_reader
from recordmill.pipeline.build.summaries.numbers import rounded
from recordmill.pipeline.build.summaries.summary import Summary, add_up, train_rows
from recordmill.pipeline.sources.faults import Fault, Reject
from recordmill.transforms.contract.image_header import ImageError
from recordmill.transforms.contract.kinds.image import ImageOptions

ROW_COLUMNS = ("@sample", "@source", "@key", "@chunk", "@position")
SUMS = ("images", "pixels", "total", "squares")
KEYS = ("feature", "channel", "level")
"""An image's level is the number of times that the sample can be halved until it holds the image no more."""
SCHEMA = pa.schema([(KEYS[0], pa.string()), *((name, pa.int64()) for name in (*KEYS[1:], *SUMS))])


class PixelSums(Summary[dict[str, dict[str, Any]]]):
    """Measures images at their final size, before they are encoded; an image that cannot be decoded counts nothing."""

    name = "pixels"
    rows_at_once = 128

    @property
    def is_needed(self) -> bool:
        """Whether there are such features."""
        return bool(self.features)

    @cached_property
    def features(self) -> Mapping[str, ImageOptions]:
        """The features that are measured, with their options."""
        return self.planned.measured_images()

    @cached_property
    def _meters(self) -> Mapping[str, PixelMeter]:
        reader = image_reader(self.planned)
        return {name: PixelMeter(reader, options) for name, options in self.features.items()}

    def prepare(self) -> None:
        """Traces the graphs."""
        _ = self._meters

    def of_rows(self, rows: pa.Table, rejects: list[Reject]) -> pa.Table:
        """Measures the images that the sample holds; rejects those whose file is away."""
        limit = int(self.planned.sample_share * (1 << 64))
        train = train_rows(self.planned, rows, [*ROW_COLUMNS, *self.features])
        sampled = train.filter(pa.array([hash_ < limit for hash_ in train["@sample"].to_pylist()], pa.bool_()))
        sources, tables = sampled["@source"].to_pylist(), [SCHEMA.empty_table()]
        levels = np.array([64 - hash_.bit_length() for hash_ in sampled["@sample"].to_pylist()], np.int64)
        for name, meter in self._meters.items():
            bad = dict[int, ImageError]()
            pixels, total, squares = meter.measure(sources, sampled[name].to_pylist(), bad.__setitem__)
            rejects += [self._reject(sampled, row, name, error) for row, error in bad.items() if error.path]
            for level in np.unique(levels):
                chosen = levels == level
                sums = (each[chosen].sum(axis=0) for each in (pixels > 0, pixels, total, squares))
                tables.append(_table(name, int(level), *sums))
        return pa.concat_tables(tables)

    def _reject(self, rows: pa.Table, row: int, name: str, error: ImageError) -> Reject:
        column = self.planned.schema.features[name]
        return reject_row(rows, row, Fault(error.reason, error.message, column, error.path))

    def add(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Adds up the channels' sums."""
        return add_up(tables, KEYS, dict.fromkeys(SUMS, "sum"))

    def result(self, tables: Sequence[pa.Table]) -> dict[str, dict[str, Any]]:
        """Returns `mean` and `variance` by channel, 0 and 1 where no image was seen, and the number of `images`."""
        whole = pa.concat_tables([SCHEMA.empty_table(), *tables])
        sampled = whole.filter(pc.greater_equal(whole["level"], sample_level(self.planned.sample_share)))
        added = add_up([sampled], KEYS[:2], dict.fromkeys(SUMS, "sum")).sort_by("channel")
        return {
            name: _describe(added.filter(pc.equal(added["feature"], name)), options.channels)
            for name, options in self.features.items()
        }


def sample_level(share: float) -> int:
    """Returns the lowest level of the images that a sample of this share, above 0, holds."""
    return math.floor(-math.log2(share))


def _table(feature: str, level: int, images: Any, pixels: Any, total: Any, squares: Any) -> pa.Table:
    channels = len(total)
    same = ([value] * channels for value in (level, images, pixels))
    return pa.table([[feature] * channels, np.arange(channels), *same, total, squares], schema=SCHEMA)


def _describe(summed: pa.Table, channels: int) -> dict[str, Any]:
    rows = summed.to_pylist()
    if not any(row["pixels"] for row in rows):
        return {"mean": [0.0] * channels, "variance": [1.0] * channels, "images": 0}
    pairs = [rounded(row["pixels"], row["total"], row["squares"]) for row in rows]
    return {
        "mean": [mean for mean, _ in pairs],
        "variance": [variance for _, variance in pairs],
        "images": rows[0]["images"],
    }
