"""The kinds of features in NumPy: each one's arrays of a batch, and how stored values become them.

A kind's row in `KINDS` names two functions. `specs` gives the arrays of one row, before anything is read; `ready`
makes the arrays of a batch. Both follow the parts that the description declares.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from recordmill.transforms.contract.array_spec import ArraySpec
from recordmill.transforms.contract.finish_options import FinishOptions
from recordmill.transforms.contract.kinds.base import Description, ListDescription
from recordmill.transforms.contract.kinds.boxes import BoxesDescription
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import ImageDescription, ImageSequenceDescription
from recordmill.transforms.contract.kinds.number import NumberDescription, NumbersDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription, RawDescription
from recordmill.transforms.contract.kinds.text import TextDescription
from recordmill.transforms.contract.ragged import Column, Ragged, RowError
from recordmill.transforms.contract.stored import part_name
from recordmill.transforms.numpy.augment.base import Shape
from recordmill.transforms.numpy.augment.chain import Augment
from recordmill.transforms.numpy.buffers import Array, Empty
from recordmill.transforms.numpy.images import ImageReader, ReadImages
from recordmill.transforms.numpy.texts import padded, strings, texts

Features: TypeAlias = Mapping[str, Description]
Parts: TypeAlias = Mapping[str, Any]
"""Columns or arrays, by part."""
Specs: TypeAlias = dict[str, ArraySpec]
"""The arrays of one row, by part."""

BOX = 4  # numbers


class Form(NamedTuple):
    """The user's choices for one feature."""

    options: FinishOptions
    image_shape: Callable[[Shape], Shape]
    """Gives the shape of images after augmentation, by [height, width, channels] before."""


class Batch:
    """The arguments of `features.finish`, and the boxes that images move."""

    def __init__(
        self,
        features: Features,
        columns: Mapping[str, Column],
        options: FinishOptions,
        augment: Mapping[str, Augment],
        empty: Empty,
    ) -> None:
        self.columns, self.options, self.augment, self.empty = columns, options, augment, empty
        self.boxes = {
            name: (description.image, _boxes(name, columns[name]))
            for name, description in features.items()
            if isinstance(description, BoxesDescription)
        }

    def stored(self, name: str, description: Description) -> dict[str, Any]:
        """Gives the columns of a feature, by part."""
        return {part: self.columns[part_name(name, part)] for part in description.parts()}

    def images(self, name: str, description: ReadImages) -> ImageReader:
        """Gives the reader of a feature's images."""
        boxes = [rows for image, rows in self.boxes.values() if image == name]
        return ImageReader(name, description, self.options.dtype, self.augment.get(name), boxes, self.empty)


def _boxes(name: str, column: Any) -> Ragged:
    """Gives boxes of four numbers, float32 [boxes, 4], that may be written to."""
    values, splits = column
    wrong = np.flatnonzero(splits % BOX)
    if len(wrong):
        row = int(wrong[0]) - 1
        raise RowError(row, f"'{name}' holds {splits[row + 1] - splits[row]} numbers, which are no boxes of {BOX}")
    return Ragged(np.array(values, np.float32).reshape(-1, BOX), splits // BOX)


def _value_specs(description: Description, form: Form) -> Specs:
    """Gives parts that are read as they are stored."""
    parts = description.parts().items()
    return {part: ArraySpec((None,) if stored.shape is None else stored.shape, stored.dtype) for part, stored in parts}


def _values(batch: Batch, name: str, description: Description) -> Parts:
    return {part: _array(values) for part, values in batch.stored(name, description).items()}


def _array(values: Any) -> Array:
    """Gives values as an array: bytes, or views of them, as `bytes`."""
    return strings(values) if isinstance(values, list) or values.dtype == object else values


def _list_specs(description: ListDescription | RawDescription, form: Form) -> Specs:
    return _lists_of(description, (), description.stored)


def _lists_of(description: ListDescription | RawDescription, shape: tuple[int | None, ...], dtype: str) -> Specs:
    if isinstance(description.length, int):
        return {"": ArraySpec((description.length, *shape), dtype)}
    return {"": ArraySpec((description.max_length, *shape), dtype), "length": ArraySpec((), "int64")}


def _list(batch: Batch, name: str, description: ListDescription | RawDescription) -> Parts:
    rows: Any = batch.columns[name]
    return _padded(batch, description, Ragged(_array(rows.values), rows.splits))


def _padded(
    batch: Batch, description: ListDescription | RawDescription, rows: Ragged, padding: int | None = None
) -> Parts:
    return _with_length(description, rows, lambda length: _filled(batch, rows, length, padding))


def _filled(batch: Batch, rows: Ragged, length: int | None, padding: int | None = None) -> Array:
    filling: Any = padding if padding is not None else b"" if rows.values.dtype == object else 0
    return padded(rows, length, filling, batch.empty)


def _with_length(
    description: ListDescription | RawDescription, rows: Ragged, full: Callable[[int | None], Array]
) -> Parts:
    """Gives lists of the length that all have; or as wide as their limit, and their lengths."""
    if isinstance(description.length, int):
        return {"": full(description.length)}
    return {"": full(description.max_length), "length": rows.lengths()}


def _image_specs(description: ImageDescription, form: Form) -> Specs:
    parts = _value_specs(description, form) | {"": _image_spec(description, form)}
    parts.pop("orientation", None)
    return parts | {"shape": ArraySpec((2,), "int64")} if None in description.shape else parts


def _image_spec(description: ReadImages, form: Form) -> ArraySpec:
    return ArraySpec(form.image_shape(description.shape), form.options.dtype or description.dtype)


def _image(batch: Batch, name: str, description: ImageDescription) -> Parts:
    stored = batch.stored(name, description)
    ready = batch.images(name, description).images(stored[""], stored.get("orientation"))
    return {**ready, "missing": stored["missing"]} if "missing" in stored else ready


def _image_sequence_specs(description: ImageSequenceDescription, form: Form) -> Specs:
    image = _image_spec(description, form)
    return _lists_of(description, image.shape, image.dtype)


def _image_sequence(batch: Batch, name: str, description: ImageSequenceDescription) -> Parts:
    rows: Any = batch.columns[name]
    return _with_length(description, rows, lambda length: batch.images(name, description).sequences(rows, length))


def _box_specs(description: BoxesDescription, form: Form) -> Specs:
    return _lists_of(description, (BOX,), description.stored)


def _moved_boxes(batch: Batch, name: str, description: BoxesDescription) -> Parts:
    return _padded(batch, description, batch.boxes[name][1])


def _text_specs(description: TextDescription, form: Form) -> Specs:
    options = form.options
    length = description.packed or options.length_of(description.max_length)
    if description.packed or options.text == "packed":
        parts = {"": "int64", "segments": "int32", "positions": "int32"}
        return {part: ArraySpec((length,), dtype) for part, dtype in parts.items()}
    ragged = options.text == "ragged"
    shape = (None if ragged else length,)
    specs = _value_specs(description, form) | {"": ArraySpec(shape, "int64", ragged)}
    return specs | {"mask": ArraySpec(shape, "bool")} if options.masks and not ragged else specs


def _text(batch: Batch, name: str, description: TextDescription) -> Parts:
    return texts(name, description, batch.stored(name, description), batch.options, batch.empty)


def _categories_specs(description: CategoriesDescription, form: Form) -> Specs:
    if description.read == "multi_hot":
        return {"": ArraySpec((description.vocabulary_size,), "float32")}
    return _list_specs(description, form)


def _categories(batch: Batch, name: str, description: CategoriesDescription) -> Parts:
    rows: Any = batch.columns[name]
    if description.read == "multi_hot":
        return {"": _multi_hot(name, rows, description.vocabulary_size, batch.empty)}
    return _padded(batch, description, rows, description.padding_id)


def _multi_hot(name: str, rows: Ragged, size: int, empty: Empty) -> Array:
    """Gives 1 at each id that a row holds, else 0: float32 [rows, size]. Ids below 0, of no name, are left out."""
    lengths = rows.lengths()
    of_row = np.repeat(np.arange(len(lengths)), lengths)
    wrong = np.flatnonzero(rows.values >= size)
    if len(wrong):
        raise RowError(int(of_row[wrong[0]]), f"'{name}' holds the id {rows.values[wrong[0]]}, of {size} ids")
    hot = empty((len(lengths), size), np.float32)
    hot.fill(0)
    known = rows.values >= 0
    hot[of_row[known], rows.values[known]] = 1
    return hot


def _raw_specs(description: RawDescription, form: Form) -> Specs:
    return (_value_specs if description.length is None else _list_specs)(description, form)


def _raw(batch: Batch, name: str, description: RawDescription) -> Parts:
    return (_values if description.length is None else _list)(batch, name, description)


def _own(batch: Batch, name: str, description: OwnDescription) -> Parts:
    if description.shape is not None:
        return _values(batch, name, description)
    rows: Any = batch.columns[name]
    return {"": _filled(batch, Ragged(_array(rows.values), rows.splits), None)}


class Kind(NamedTuple):
    """The functions of a kind, which take its own description."""

    specs: Callable[[Any, Form], Specs]
    ready: Callable[[Batch, str, Any], Parts]


KINDS: Mapping[type[Description], Kind] = {
    ImageDescription: Kind(_image_specs, _image),
    ImageSequenceDescription: Kind(_image_sequence_specs, _image_sequence),
    BoxesDescription: Kind(_box_specs, _moved_boxes),
    TextDescription: Kind(_text_specs, _text),
    CategoryDescription: Kind(_value_specs, _values),
    CategoriesDescription: Kind(_categories_specs, _categories),
    NumberDescription: Kind(_value_specs, _values),
    NumbersDescription: Kind(_list_specs, _list),
    RawDescription: Kind(_raw_specs, _raw),
    OwnDescription: Kind(_value_specs, _own),
}
