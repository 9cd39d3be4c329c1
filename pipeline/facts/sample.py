"""A small sample of a version's records, for people: some as they are, and counts of what the others hold.

Records are in the order of their keys' hashes, so the first of a split are a random sample, the same each time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import ImageStat

from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.facts.padding import Color, background_of, hatched
from recordmill.pipeline.facts.version import shown_split
from recordmill.pipeline.inspection.records import Record, read_records
from recordmill.pipeline.inspection.values import BOXED_SIDE, StoredImage, color_of
from recordmill.pipeline.reader.notebook import SIDE, data_url, small
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.boxes import Box, BoxesDescription
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.contract.kinds.text import TextDescription

MOST_RECORDS = 1_000  # that are looked at
MOST_SPANS = 32  # in a bucket, each costs some requests
MOST_BYTES = 32 << 20  # 32 MiB of records, of which the images are not decoded
MOST_IMAGES = 120  # that are decoded
MOST_A_CLASS = 12
MOST_UNNAMED = 24  # where there are no classes
MOST_PIXELS = 60_000_000  # of all images that are decoded: about half a second
MOST_IN_ROW = 4  # images of a sequence that are shown
MOST_VALUES = 8  # different values of a list that are shown
TABLE_ROWS = 10  # records that are shown where there are no images


class Drawn(NamedTuple):
    """A box of a thumbnail, in its pixels."""

    x: float
    y: float
    width: float
    height: float
    color: int
    name: str
    """Its class; empty where it has none."""


class Thumbnail(NamedTuple):
    """An image of a record as the model gets it, made small."""

    feature: str
    url: str
    width: int
    """In pixels, of the small one."""
    height: int
    size: str
    """The size of the image as the model gets it: `640×480`."""
    boxes: Sequence[Drawn]


class ShownRecord(NamedTuple):
    """A record that is shown."""

    key: str
    split: str
    label: str | None
    """Its class; None where the label is no category."""
    images: Sequence[Thumbnail]
    texts: Mapping[str, str]
    values: Mapping[str, str]
    """Its other features, in words."""


class ImageCounts(NamedTuple):
    """Counts and measures of the images of one feature, in the sample."""

    formats: Mapping[str, int]
    widths: Histogram
    heights: Histogram
    bytes: Histogram
    brightness: Histogram
    """The mean luma of each decoded image, 0 to 255."""
    colors: Sequence[tuple[float, float]]
    """Mean and standard deviation of the decoded images' pixels by channel, 0 to 255; empty where none was decoded."""


@dataclass(frozen=True)
class RecordSample:
    """The records that were looked at."""

    split: str
    records: int
    examples: Sequence[ShownRecord]
    images: Mapping[str, ImageCounts]
    boxes: Mapping[str, npt.NDArray[np.float64]]
    """The boxes of each feature, [n, 4]: `y_min, x_min, y_max, x_max`, 0 to 1."""
    boxes_a_row: Mapping[str, Histogram]
    is_padded: bool = False
    """Whether images have padding, which is hatched."""

    @property
    def legend(self) -> list[tuple[str, int]]:
        """The names of the examples' boxes, the most frequent first, each with its colour."""
        boxes = (box for example in self.examples for image in example.images for box in image.boxes if box.name)
        return [name for name, _ in Counter((box.name, box.color) for box in boxes).most_common()]

    @property
    def words(self) -> str:
        """The size of the sample: `of 1,000 records of train`."""
        return f"of {self.records:,} records of {self.split}"


class _Measured(NamedTuple):
    """The measures of decoded images of one feature."""

    brightness: list[float]
    channels: list[tuple[list[float], list[float]]]
    """The means and the standard deviations of each image's channels."""


def read_sample(dataset: DatasetVersion) -> RecordSample | None:
    """Reads the sample of a version: of `train`, or of the first split that has records; None where none has.

    Raises:
        DatasetError: a shard is missing or damaged.
    """
    split = shown_split(dataset.manifest)
    if split is None:
        return None
    records = list(_first_records(dataset, split))
    roles, measured = FeatureRoles.of(dataset), defaultdict[str, _Measured](lambda: _Measured([], []))
    examples = tuple(roles.example(record, measured) for record in roles.chosen(records))
    images = {name: _image_counts(records, name, measured[name]) for name in roles.images}
    boxes = {name: [record.values[name] for record in records] for name in roles.boxes}
    flat = {name: np.array([*chain(*rows)], np.float64).reshape(-1, 4) for name, rows in boxes.items()}
    a_row = {name: _histogram(map(len, rows)) for name, rows in boxes.items()}
    return RecordSample(split, len(records), examples, images, flat, a_row, bool(roles.backgrounds))


def read_examples(dataset: DatasetVersion, records: Sequence[Record]) -> list[ShownRecord]:
    """Makes examples of some records. Raises: DatasetError: an image is damaged."""
    roles = FeatureRoles.of(dataset)
    return [roles.example(record) for record in records]


def _first_records(dataset: DatasetVersion, split: str) -> Iterator[Record]:
    """Yields the first records of a split; where there are spans, as many of each of some spans."""
    spans: list[str | None] = [*dataset.manifest.spans] or [None]
    spans = spans[:: -(-len(spans) // MOST_SPANS)]
    left = MOST_BYTES
    for span in spans:
        for record in read_records(dataset, split, span=span, limit=MOST_RECORDS // len(spans)):
            left -= record.bytes
            if left < 0:
                return
            yield record


@dataclass(frozen=True)
class FeatureRoles:
    """The features of a dataset by the way in which they are shown."""

    label: str | None
    """The label, where it is a category."""
    classes: int
    images: Sequence[str]
    boxes: Mapping[str, str]
    """The image of each feature of boxes."""
    texts: Sequence[str]
    names: Sequence[str]
    """The features of several names a row: where a row has as many names as boxes, they name these."""
    backgrounds: Mapping[str, Color]
    """The colour of the padding, of the images that have some."""

    @classmethod
    def of(cls, dataset: DatasetVersion) -> "FeatureRoles":
        """Sorts the features of a dataset. Raises: DatasetError: a kind is unknown."""
        known = read_descriptions(dataset.features)
        options = dataset.manifest.spec.get("features", {})
        backgrounds = {name: background_of(options.get(name, {})) for name in known}
        label = dataset.label if isinstance(known.get(dataset.label or ""), CategoryDescription) else None
        return cls(
            label,
            known[label].vocabulary_size if label else 0,  # type: ignore[attr-defined] # it is a category
            [name for name, each in known.items() if isinstance(each, Pixels)],
            {name: each.image for name, each in known.items() if isinstance(each, BoxesDescription)},
            [name for name, each in known.items() if isinstance(each, TextDescription)],
            [name for name, each in known.items() if isinstance(each, CategoriesDescription)],
            {name: color for name, color in backgrounds.items() if color is not None},
        )

    def chosen(self, records: Sequence[Record]) -> list[Record]:
        """Chooses the records to show: of each class as many, by class, as far as pixels allow."""
        if not self.images:
            return list(records[:TABLE_ROWS])
        most = min(MOST_A_CLASS, max(1, MOST_IMAGES // max(1, self.classes))) if self.label else MOST_UNNAMED
        seen, chosen, pixels = Counter[str](), list[Record](), 0
        for record in records:
            label = self._class_of(record)
            if seen[label] < most and len(chosen) * len(self.images) < MOST_IMAGES:
                pixels += sum(image.width * image.height for name in self.images for image in images_of(record, name))
                if pixels > MOST_PIXELS and chosen:
                    break
                seen[label] += 1
                chosen.append(record)
        return sorted(chosen, key=self._class_of)

    def _class_of(self, record: Record) -> str:
        return str(record.values[self.label]) if self.label else ""

    def example(self, record: Record, measured: Mapping[str, _Measured] | None = None) -> ShownRecord:
        """Decodes a record's images and makes them small, with their boxes; adds their measures to `measured`."""
        thumbnails = []
        for name in self.images:
            for image in images_of(record, name)[:MOST_IN_ROW]:
                pixels = image.pillow()
                if measured is not None:
                    colors = ImageStat.Stat(pixels)
                    measured[name].channels.append((colors.mean, colors.stddev))
                    measured[name].brightness.append(ImageStat.Stat(pixels.convert("L")).mean[0])
                shown = small(hatched(pixels, self.backgrounds.get(name)), BOXED_SIDE if self.boxes else SIDE)
                boxes = tuple(self._boxes(record, name, *shown.size))
                size = f"{pixels.width}×{pixels.height}"
                thumbnails.append(Thumbnail(name, data_url(shown), shown.width, shown.height, size, boxes))
        return ShownRecord(record.key, record.split, self.label_of(record), thumbnails, *self.words_of(record))

    def label_of(self, record: Record) -> str | None:
        """Returns a record's class in words; None where the label is no category."""
        return in_words(record.values[self.label]) if self.label else None

    def words_of(self, record: Record) -> tuple[dict[str, str], dict[str, str]]:
        """Describes a record's texts, and its other features but images, boxes and label, by feature."""
        texts = {name: in_words(record.values[name]) for name in self.texts if name in record.values}
        shown = {*self.images, *self.boxes, *texts, self.label}
        return texts, {name: in_words(value) for name, value in record.values.items() if name not in shown}

    def _boxes(self, record: Record, image: str, width: int, height: int) -> Iterator[Drawn]:
        for box, name in self.named_boxes(record, image):
            left, top = min(box.x_min, box.x_max) * width, min(box.y_min, box.y_max) * height
            across, down = abs(box.x_max - box.x_min) * width, abs(box.y_max - box.y_min) * height
            yield Drawn(round(left, 1), round(top, 1), round(across, 1), round(down, 1), color_of(name), name)

    def named_boxes(self, record: Record, image: str) -> Iterator[tuple[Box, str]]:
        """Yields the boxes of an image; each with its name, where a feature has as many names as there are boxes.

        Others are called by their feature where there are several of boxes, else not at all.
        """
        for feature in (name for name, of in self.boxes.items() if of == image):
            boxes, other = record.values[feature], feature if len(self.boxes) > 1 else ""
            named = next((record.values[name] for name in self.names if len(record.values[name]) == len(boxes)), None)
            yield from zip(boxes, map(in_words, named or [other] * len(boxes)), strict=True)


def images_of(record: Record, feature: str) -> list[StoredImage]:
    """Returns the images of a feature: none where it is missing, several of a sequence."""
    value = record.values[feature]
    return value if isinstance(value, list) else [] if value is None else [value]


def _image_counts(records: Sequence[Record], feature: str, measured: _Measured) -> ImageCounts:
    images = [image for record in records for image in images_of(record, feature)]
    channels = []
    for channel in zip(*(zip(*each, strict=True) for each in measured.channels), strict=True):
        means, deviations = np.array(channel).T
        mean = means.mean()
        variance = (deviations**2 + means**2).mean() - mean**2
        channels.append((float(mean), float(np.sqrt(max(0.0, variance)))))
    return ImageCounts(
        Counter(image.format for image in images),
        _histogram(image.width for image in images),
        _histogram(image.height for image in images),
        _histogram(len(image.data) for image in images),
        _histogram(measured.brightness),
        tuple(channels),
    )


def _histogram(values: Any) -> Histogram:
    return Histogram.of(np.array([*values], np.float32))


def in_words(value: Any) -> str:
    """Describes a value of a record in some words; a missing one is a dash.

    >>> in_words(["cat", "dog", "cat"]), in_words(None), in_words(0.5)
    ('cat ×2, dog', '–', '0.5')
    """
    match value:
        case None:
            return "–"
        case float():
            return f"{value:.6g}"
        case bytes():
            return f"{len(value):,} bytes"
        case list():
            counts = Counter(map(in_words, value))
            shown = [words if count == 1 else f"{words} ×{count}" for words, count in counts.items()][:MOST_VALUES]
            return ", ".join([*shown, "…"] if len(counts) > len(shown) else shown)
    text = str(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
