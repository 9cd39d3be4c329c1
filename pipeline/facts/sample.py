"""A small sample of a version's records, for people: some to show, and counts of the others; in notebooks a table.

Records are ordered by the hash of the key, so a split's first ones are a reproducible random sample.
"""

import itertools
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import ImageStat

from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.facts import painting
from recordmill.pipeline.facts.painting import Color, Levels, MaskClass, Picture
from recordmill.pipeline.facts.version import VersionFacts, shown_split
from recordmill.pipeline.inspection import Record, StoredImage, read_records
from recordmill.pipeline.reader import notebook
from recordmill.pipeline.safe_text import count
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.images.pixels import black_and_white
from recordmill.transforms.images.places_stored import Box
from recordmill.transforms.texts.text_stored import LOSS_MASK

MOST_RECORDS = 1_000  # sampled
MOST_SPANS = 32  # in a bucket, each costs some requests
MOST_BYTES = 32 << 20  # 32 MiB of sampled records
MOST_IMAGES, MOST_OF_ONE = 120, 500  # decoded: of all, or of the only class
WHOLE_CHATS = 3  # shown
MOST_A_CLASS = 12
MOST_UNNAMED = 24  # without classes
MOST_PIXELS = 60_000_000  # decoded in all: about half a second
MOST_IN_ROW = 4  # images shown of a sequence
MOST_VALUES = 8  # different values shown of a list
TABLE_ROWS = 10  # records shown without images
BOXED_SIDE = 256  # pixels of an image with boxes or key points drawn


class Drawn(NamedTuple):
    """A box in a thumbnail, in pixels."""

    x: float
    y: float
    width: float
    height: float
    color: str
    name: str  # its class, or empty


class Thumbnail(NamedTuple):
    """A small version of a model-ready image."""

    feature: str
    url: str
    width: int
    height: int
    size: str  # the model's image size: `640×480`
    boxes: Sequence[Drawn]


class ShownRecord(NamedTuple):
    """A record to show."""

    key: str
    split: str
    label: str | None  # its class, if the label is a category
    images: Sequence[Thumbnail]
    texts: Mapping[str, str]
    values: Mapping[str, str]  # other features, in words


class ImageCounts(NamedTuple):
    """Counts and measures of one feature's sampled images."""

    formats: Mapping[str, int]
    widths: Histogram
    heights: Histogram
    bytes: Histogram
    brightness: Histogram  # mean luma of each decoded image, 0 to 255
    colors: Sequence[tuple[float, float]]  # mean, deviation of decoded pixels by channel, 0 to 255; may be empty


@dataclass(frozen=True)
class RecordSample:
    """The sampled records."""

    split: str
    records: int
    examples: Sequence[ShownRecord]
    images: Mapping[str, ImageCounts]
    boxes: Mapping[str, npt.NDArray[np.float64]]  # [n, 4]: `y_min, x_min, y_max, x_max`, 0 to 1
    boxes_a_row: Mapping[str, Histogram]
    is_padded: bool = False  # whether images have padding, shown hatched
    has_points: bool = False  # whether key points are drawn on images
    masks: Mapping[str, Sequence[MaskClass]] = field(default_factory=dict)  # of the examples
    chats: Mapping[str, Sequence[tuple[str, Any]]] = field(default_factory=dict)  # keys, and runs of text
    label: str | None = None  # the only class of the records

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Names of the examples' boxes with their colours, the most frequent first."""
        boxes = (box for example in self.examples for image in example.images for box in image.boxes if box.name)
        return [name for name, _ in Counter((box.name, box.color) for box in boxes).most_common()]

    @property
    def words(self) -> str:
        """The size of the sample: `of 1,000 records of train`."""
        return f"of {self.records:,} records of {self.split}{f', of {self.label}' if self.label else ''}"


class _Measured(NamedTuple):
    brightness: list[float]
    channels: list[tuple[list[float], list[float]]]  # means and standard deviations of each image's channels
    values: list[Levels]  # of masks, [height, width, 1]

    def add(self, picture: Picture) -> None:
        if picture.mask:
            self.values.append(picture.pixels)
        elif not picture.image.pixels.planes:  # those are shown stretched
            colors = ImageStat.Stat(picture.plain)
            self.channels.append((colors.mean, colors.stddev))
            self.brightness.append(ImageStat.Stat(picture.plain.convert("L")).mean[0])


def read_sample(dataset: DatasetVersion, label: str | None = None) -> RecordSample | None:
    """Samples one class, if given, of `train`, else of the first filled split. Raises: DatasetError: damage."""
    split = shown_split(dataset.manifest)
    if split is None:
        return None
    records = list(_first_records(dataset, split, label))
    roles, measured = FeatureRoles(dataset), defaultdict[str, _Measured](lambda: _Measured([], [], []))
    examples = tuple(roles.example(record, measured) for record in roles.chosen(records, label is not None))
    images = {name: _image_counts(records, name, measured[name]) for name in roles.images if name not in roles.masks}
    boxes = {name: [record.values[name] for record in records] for name in roles.boxes}
    flat = {name: np.array([*chain(*rows)], np.float64).reshape(-1, 4) for name, rows in boxes.items()}
    a_row = {name: _histogram(map(len, rows)) for name, rows in boxes.items()}
    masks = {name: painting.mask_classes(each, measured[name].values) for name, each in roles.class_masks.items()}
    are_drawn = bool(roles.backgrounds), bool(roles.keypoints)
    chats = {name: [(record.key, record.values[name].runs) for record in records[:WHOLE_CHATS]] for name in roles.chats}
    return RecordSample(split, len(records), examples, images, flat, a_row, *are_drawn, masks, chats, label)


def _first_records(dataset: DatasetVersion, split: str, label: str | None) -> Iterator[Record]:
    """Yields the first records of a split, or as many of each of some spans."""
    spans: list[str | None] = [*dataset.manifest.spans] or [None]
    spans = spans[:: -(-len(spans) // MOST_SPANS)]
    left = MOST_BYTES
    for span in spans:
        for record in read_records(dataset, split, span=span, label=label, limit=MOST_RECORDS // len(spans)):
            left -= record.bytes
            if left < 0:
                return
            yield record


class FeatureRoles:
    """A dataset's features by the way to show them."""

    def __init__(self, dataset: DatasetVersion) -> None:
        """Sorts a dataset's features. Raises: DatasetError: a kind is unknown."""
        known, options = read_descriptions(dataset.features), dataset.manifest.spec.get("features", {})
        label = known.get(dataset.label or "")  # shown if a category
        classes = label.class_count if label else None
        self.label, self.classes = (None, 0) if classes is None else (dataset.label, classes)
        self.images = {name: image for name, each in known.items() if (image := each.as_image)}
        self.masks: dict[str, Any] = {name: image for name, image in self.images.items() if image.is_mask}
        self.class_masks = {name: each for name, each in self.masks.items() if not each.is_list}  # of a value a class
        places = {name: some for name, each in known.items() if (some := each.as_places)}
        self.boxes = {name: each for name, each in places.items() if each.partners is None}
        self.keypoints: dict[str, Any] = {name: each for name, each in places.items() if name not in self.boxes}
        self.texts = [name for name, each in known.items() if each.as_text]
        self.chats = [name for name, each in known.items() if each.as_text and LOSS_MASK in each.as_text.aligned]
        lists = {name: each.ids for name, each in known.items() if each.is_list}
        # Several names a row: if as many as boxes, they name them.
        self.names = [name for name, ids in lists.items() if ids and ids.are_classes and ids.ignored is None]
        # The padding's colour of padded images.
        self.backgrounds = {name: color for name in known if (color := background_of(options.get(name, {})))}
        # Colours by name: of the values of masks, then from the first free number.
        named = [each.classes or {} for each in self.class_masks.values()]
        self.numbers = {name: int(value) for each in named[::-1] for value, name in each.items() if int(value)}
        words = [*self.boxes]
        for feature in self.names if self.boxes else ():
            with suppress(DatasetError):  # hashed
                words += dataset.vocabulary(feature)
        free = itertools.filterfalse({*self.numbers.values()}.__contains__, itertools.count(1))
        self.numbers |= zip([name for name in dict.fromkeys(words) if name not in self.numbers], free, strict=False)

    def chosen(self, records: Sequence[Record], are_one: bool = False) -> list[Record]:
        """Chooses the records to show, sorted by class: as many of each class, within the limit of pixels."""
        limit = MOST_OF_ONE if are_one else MOST_IMAGES
        if not self.images:
            return list(records[: limit if are_one else TABLE_ROWS])
        of_class = min(MOST_A_CLASS, max(1, limit // max(1, self.classes))) if self.label else MOST_UNNAMED
        most = limit if are_one else of_class
        by_class, shown, pixels = defaultdict[str, list[Record]](list), 0, 0
        for record in records:
            chosen = by_class[str(record.values[self.label]) if self.label else ""]
            if len(chosen) < most and shown * len(self.images) < limit:
                pixels += sum(image.width * image.height for name in self.images for image in images_of(record, name))
                if pixels > MOST_PIXELS * limit // MOST_IMAGES and shown:
                    break
                chosen.append(record)
                shown += 1
        return [record for name in sorted(by_class) for record in by_class[name]]

    def example(self, record: Record, measured: Mapping[str, _Measured] | None = None) -> ShownRecord:
        """Decodes a record's images to thumbnails with boxes and key points; adds their measures to `measured`."""
        thumbnails, ranges = [], dict[str, str]()
        side = BOXED_SIDE if self.boxes or self.keypoints else notebook.SIDE
        for each in self.pictures(record):
            if measured is not None:
                measured[each.feature].add(each)
            shown, boxes = painting.with_poses(notebook.small(each.shown, side), each.poses), list[Drawn]()
            for box, name, color in each.boxes:
                left, top = min(box.x_min, box.x_max) * shown.width, min(box.y_min, box.y_max) * shown.height
                across, down = abs(box.x_max - box.x_min) * shown.width, abs(box.y_max - box.y_min) * shown.height
                boxes.append(Drawn(round(left, 1), round(top, 1), round(across, 1), round(down, 1), color, name))
            size = f"{each.shown.width}×{each.shown.height}{each.words}"
            if each.words:
                ranges.setdefault(each.feature, f"black…white{each.words.replace(',', ' ', 1)}")
            thumbnails.append(Thumbnail(each.feature, notebook.data_url(shown), *shown.size, size, boxes))
        texts, values = self.words_of(record)
        return ShownRecord(record.key, record.split, self.label_of(record), thumbnails, texts, ranges | values)

    def pictures(self, record: Record) -> Iterator[Picture]:
        """Decodes a record's images. Raises: DatasetError: one is damaged."""
        for name in self.images:
            mask, background = self.masks.get(name), self.backgrounds.get(name)
            on_it = ((each, record.values[of]) for of, each in self.keypoints.items() if each.image == name)
            poses = [(each, np.array(points, np.float32).reshape(-1, *each.shape)) for each, points in on_it]
            for image in images_of(record, name)[:MOST_IN_ROW]:
                below = record.values.get(mask.image) if mask else None
                pixels, under = image.array(), below.array() if below else None
                plain = painting.seen(pixels, under, mask)
                content = painting.content_of(plain, background)
                plain, shown = plain.crop(content), painting.hatched(plain, content)
                boxes = list(self._named_boxes(record, name))
                ranges = black_and_white(pixels).T.tolist() if image.pixels.planes and not mask else []  # by channel
                words = "".join(f", {low:,.4g}…{high:,.4g}" for low, high in ranges)
                yield Picture(name, image, pixels, mask, under, plain, shown, boxes, poses, words)

    def label_of(self, record: Record) -> str | None:
        """Returns a record's class in words, if the label is a category."""
        return in_words(record.values[self.label]) if self.label else None

    def words_of(self, record: Record) -> tuple[dict[str, str], dict[str, str]]:
        """Describes a record's texts, and by feature its values that no picture shows."""
        texts = {name: in_words(record.values[name]) for name in self.texts if name in record.values}
        shown = {*self.images, *self.boxes, *self.keypoints, *self.texts, self.label}
        found = {name: record.values[name] for name in self.images}
        lists = {name: count(len(value), "image") for name, value in found.items() if value and isinstance(value, list)}
        return texts, lists | {name: in_words(value) for name, value in record.values.items() if name not in shown}

    def _named_boxes(self, record: Record, image: str) -> Iterator[tuple[Box, str, str]]:
        """Yields an image's boxes with names and colours: of a feature with as many names, or their own."""
        for feature in (name for name, each in self.boxes.items() if each.image == image):
            boxes, other = record.values[feature], feature if len(self.boxes) > 1 else ""
            named = next((record.values[name] for name in self.names if len(record.values[name]) == len(boxes)), None)
            for box, name in zip(boxes, map(in_words, named or [other] * len(boxes)), strict=True):
                hashed = 1 + zlib.crc32(name.encode("utf-8", "surrogateescape")) % 255  # outside of all vocabularies
                yield box, name, painting.mask_color(self.numbers.get(name, hashed))


def images_of(record: Record, feature: str) -> list[StoredImage]:
    """Returns a feature's images: none if missing, several of a sequence."""
    value = record.values[feature]
    return value if isinstance(value, list) else [] if value is None else [value]


def _image_counts(records: Sequence[Record], feature: str, measured: _Measured) -> ImageCounts:
    images = [image for record in records for image in images_of(record, feature)]
    channels = []
    for channel in zip(*(zip(*each, strict=True) for each in measured.channels), strict=True):
        means, deviations = np.array(channel).T
        variance = (deviations**2 + means**2).mean() - means.mean() ** 2
        channels.append((float(means.mean()), float(np.sqrt(max(0.0, variance)))))
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
    """Describes a record's value in words; a missing one is a dash.

    >>> in_words(["cat", "dog", "cat"]), in_words(None), in_words(0.5)
    ('cat ×2, dog', '–', '0.5')
    """
    match value:
        case None:
            return "–"
        case float():
            return f"{value:.6g}"
        case bytes():
            with suppress(UnicodeDecodeError):  # an adopted text
                return in_words(value.decode())
            return f"{len(value):,} bytes"
        case list():
            counts = Counter(map(in_words, value))
            shown = [words if count == 1 else f"{words} ×{count}" for words, count in counts.items()][:MOST_VALUES]
            return ", ".join([*shown, "…"] if len(counts) > len(shown) else shown)
    text = str(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


def dataset_html(dataset: DatasetVersion) -> str:
    """Shows a dataset in a notebook: splits, features, and the first records of a split."""
    head = f"<b>{notebook.html_text(dataset.name)}</b> {notebook.html_text(dataset.version)}"
    splits = notebook.table(["split", "records"], ((name, f"{count:,}") for name, count in dataset.splits.items()))
    facts = VersionFacts(dataset.folder, dataset.manifest).features.values()
    features = notebook.table(["feature", "kind", "stored"], ((each.name, each.kind, each.stored) for each in facts))
    split, shown = shown_split(dataset.manifest), ""
    try:
        records = [] if split is None else list(read_records(dataset, split, limit=notebook.SHOWN))
        roles = FeatureRoles(dataset) if records else None
        if roles and not roles.images:
            rows = ([record.key, *map(in_words, record.values.values())] for record in records)
            shown = notebook.table(["key", *dataset.features], rows)
        for each in map(roles.example, records) if roles and roles.images else ():
            title, key = notebook.html_text(each.label or each.key), notebook.html_text(each.key)
            urls = (image.url for image in each.images)
            shown += "".join(f'<img src="{url}" title="{title}" alt="{key}" height="96"> ' for url in urls)
    except UserError as error:
        shown = f"<p>{notebook.html_text(error)}</p>"
    return f"<div>{head}{splits}{features}{shown}</div>"


def background_of(options: Mapping[str, Any]) -> Color | None:
    """Returns the padding's colour by an image's options in the spec; None without padding."""
    is_padded = options.get("fit") == "pad" and options.get("size") is not None
    background = options.get("background")  # a deep image's is a number, an earlier one's its padding
    color = (options.get("padding") or background) if isinstance(background, list | tuple) else ()
    return tuple(color) if is_padded and len(color) == 3 else None
