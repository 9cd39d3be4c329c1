"""The values of records as plain Python, kind by kind: names instead of ids, texts, numbers in their own units.

>>> Decoder(dataset).decode(columns, 0)  # doctest: +SKIP
{'image': StoredImage(PNG, 32x32, 2,311 bytes), 'label': 'cat', 'price': 12.5, 'caption': Text(…)}
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from recordmill.pipeline.dataset.vocabulary import UNKNOWN, Ids
from recordmill.pipeline.inspection.images import StoredImage
from recordmill.pipeline.inspection.words import Text, text_of
from recordmill.pipeline.reader.dataset import Dataset
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import Description, Json
from recordmill.transforms.contract.kinds.boxes import BoxesDescription
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import ImageDescription, ImageSequenceDescription
from recordmill.transforms.contract.kinds.number import NumberDescription, NumbersDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription, RawDescription
from recordmill.transforms.contract.kinds.text import TextDescription, TextsDescription
from recordmill.transforms.contract.ragged import Column, Ragged
from recordmill.transforms.contract.stored import part_name

BOX = 4  # numbers
ID = np.dtype("<i4")  # of packed rows


class Box(NamedTuple):
    """A box, in shares of the image's height and width, 0..1."""

    y_min: float
    x_min: float
    y_max: float
    x_max: float


@dataclass(frozen=True)
class Bucket:
    """A number that is stored as the id of its bucket: at least `low`, and less than `high`."""

    id: int
    low: float
    high: float

    def __str__(self) -> str:
        """Shows the id and the range."""
        return f"{self.id} [{self.low:g}, {self.high:g})"


Value: TypeAlias = Any
"""`str` of a category (`int` where ids are hashes), `float`, `Bucket`, `Text`, `StoredImage`, `Box`, `bytes`, `int`, a
list of these, or None where the row lacks the value."""
Parts: TypeAlias = Mapping[str, Any]
"""A row's value of each part."""


class Learned(NamedTuple):
    """The facts of the data that a feature's values are decoded with."""

    vocabulary: Sequence[str] | None
    """Words by id; None where there are no ids, or where they are hashes."""
    statistics: Json


class Decoder:
    """Decodes the rows of parsed columns."""

    def __init__(self, dataset: Dataset, features: Sequence[str] | None = None) -> None:
        """Takes the dataset, and the features to decode; None: all.

        Raises:
            DatasetError: a feature or its kind is unknown, or a vocabulary's file is damaged.
        """
        wanted = {name: dataset.manifest.feature(name) for name in features or dataset.features}
        self.descriptions = read_descriptions(wanted)
        statistics = dataset.manifest.statistics
        self._learned = {
            name: Learned(_vocabulary(dataset, name, description), statistics.get(name, {}))
            for name, description in self.descriptions.items()
        }

    def decode(self, columns: Mapping[str, Column], row: int) -> dict[str, Value]:
        """Returns a row's values by feature, of columns as `parse` gives them."""
        values = {}
        for name, description in self.descriptions.items():
            parts = {part: _cell(columns[part_name(name, part)], row) for part in description.parts()}
            values[name] = KINDS[type(description)](description, self._learned[name], parts)
        return values


def _vocabulary(dataset: Dataset, name: str, description: Description) -> list[str] | None:
    if not isinstance(description, Ids) or description.hash_buckets is not None:
        return None
    has_words = description.vocabulary is not None or getattr(description, "tokenizer", "") == "bytes"
    return dataset.vocabulary(name) if has_words else None


def _cell(column: Column, row: int) -> Any:
    if isinstance(column, Ragged):
        return column.values[int(column.splits[row]) : int(column.splits[row + 1])]
    return column[row]


def _image(description: ImageDescription, learned: Learned, parts: Parts) -> Value:
    if parts.get("missing"):
        return None
    return StoredImage(bytes(parts[""]), description, int(parts.get("orientation", 1)))


def _images(description: ImageSequenceDescription, learned: Learned, parts: Parts) -> Value:
    return [StoredImage(bytes(data), description) for data in parts[""]]


def _boxes(description: BoxesDescription, learned: Learned, parts: Parts) -> Value:
    return [Box(*map(short, box)) for box in np.reshape(parts[""], (-1, BOX)).tolist()]


def _text(description: TextDescription, learned: Learned, parts: Parts) -> Value:
    if description.packed is not None:
        return _cut(description, learned, np.frombuffer(parts[""], ID), parts["lengths"])
    length = int(parts["length"]) if "length" in parts else None
    return text_of(description, learned.vocabulary, parts[""].tolist(), length)


def _texts(description: TextsDescription, learned: Learned, parts: Parts) -> Value:
    return _cut(description, learned, parts[""], parts["lengths"])


def _cut(description: TextDescription, learned: Learned, ids: Any, lengths: Any) -> list[Text]:
    """Cuts the ids of several texts, one after another."""
    each = np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else []
    return [text_of(description, learned.vocabulary, of_text.tolist()) for of_text in each]


def _category(description: CategoryDescription, learned: Learned, parts: Parts) -> Value:
    return _name(description, learned.vocabulary, int(parts[""]))


def _categories(description: CategoriesDescription, learned: Learned, parts: Parts) -> Value:
    return [_name(description, learned.vocabulary, id_) for id_ in parts[""].tolist()]


def _name(
    description: CategoryDescription | CategoriesDescription, names: Sequence[str] | None, id_: int
) -> str | int | None:
    if names is None:
        return id_ or None  # 0 is that of a missing name; hashes begin at 1
    if id_ >= (description.first_id or 0):
        return names[id_] if id_ < len(names) else UNKNOWN
    is_missing = description.unknown_id is not None and id_ < description.unknown_id
    return None if is_missing else UNKNOWN


def _number(description: NumberDescription, learned: Learned, parts: Parts) -> Value:
    return None if parts.get("missing") else _in_its_unit(description, learned.statistics, parts[""].item())


def _numbers(description: NumbersDescription, learned: Learned, parts: Parts) -> Value:
    return [_in_its_unit(description, learned.statistics, number) for number in parts[""].tolist()]


def _in_its_unit(description: NumberDescription | NumbersDescription, statistics: Json, stored: float) -> Value:
    """Undoes normalization and transform, as exactly as float32 allows; leaves a number whose statistics are lost."""
    if description.buckets is not None:
        edges = [-math.inf, *(description.boundaries or ()), math.inf]
        return Bucket(int(stored), *edges[int(stored) : int(stored) + 2])
    if not all(name in statistics for name in SCALED_BY[description.normalize]):
        return short(stored)
    unscaled = _unscaled(description.normalize, statistics, stored)
    return short(UNTRANSFORMED[description.transform](unscaled))


SCALED_BY: Mapping[str, Sequence[str]] = {
    "none": (),
    "z_score": ("mean", "variance"),
    "min_max": ("minimum", "maximum"),
}
"""The statistics that each way to normalize uses."""


def _unscaled(normalize: str, statistics: Json, stored: float) -> float:
    if normalize == "z_score":
        return stored * (math.sqrt(statistics["variance"]) or 1.0) + statistics["mean"]
    if normalize == "min_max":
        low, high = statistics["minimum"], statistics["maximum"]
        return stored * ((high - low) or 1.0) + low
    return stored


def short(number: float) -> float:
    """Returns the number of the fewest digits that is the same float32: 0.1 instead of 0.10000000149011612."""
    return float(str(np.float32(number)))


UNTRANSFORMED: Mapping[str, Callable[[float], float]] = {"none": float, "log": math.exp, "log1p": math.expm1}


def _plain(description: RawDescription | OwnDescription, learned: Learned, parts: Parts) -> Value:
    """Returns a value, or a list, as it is stored: numbers, or bytes."""
    value = parts[""]
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    if isinstance(value, list):
        return [bytes(each) for each in value]
    return _nested(value.tolist()) if value.dtype == np.float32 else value.tolist()


def _nested(numbers: Any) -> Any:
    """Shortens the numbers of lists in lists."""
    return [_nested(each) for each in numbers] if isinstance(numbers, list) else short(numbers)


KINDS: Mapping[type[Description], Callable[[Any, Learned, Parts], Value]] = {
    ImageDescription: _image,
    ImageSequenceDescription: _images,
    BoxesDescription: _boxes,
    TextDescription: _text,
    TextsDescription: _texts,
    CategoryDescription: _category,
    CategoriesDescription: _categories,
    NumberDescription: _number,
    NumbersDescription: _numbers,
    RawDescription: _plain,
    OwnDescription: _plain,
}
"""The functions of the kinds, which take a feature's description, what was learned for it, and a row's parts."""
