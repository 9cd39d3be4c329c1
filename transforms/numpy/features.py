"""Stored values to model-ready NumPy arrays, equal to `transforms.tensorflow.features` bit for bit.

Images that are scaled while they are read may differ by one level (`images`).

>>> parsed = {"price": np.array([1.5], np.float32), "key": [b"row-0"]}
>>> finish({"price": {"kind": "number", "stored": "float32"}}, parsed, FinishOptions())
{'price': array([1.5], dtype=float32), 'key': array([b'row-0'], dtype=object)}
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from recordmill.transforms.contract.finish_options import FinishOptions
from recordmill.transforms.contract.ragged import Column, Ragged, RowError
from recordmill.transforms.contract.stored import IMAGES, KEY, Description, part_name, stored_parts
from recordmill.transforms.numpy.augment import Augment
from recordmill.transforms.numpy.buffers import Array, BatchMemory, Empty
from recordmill.transforms.numpy.images import ImageReader
from recordmill.transforms.numpy.texts import padded, strings, texts

Features: TypeAlias = Mapping[str, Description]
Parts: TypeAlias = Mapping[str, Any]
"""Columns or arrays, by part."""

BOX = 4  # numbers


def finish(
    features: Features,
    columns: Mapping[str, Column],
    options: FinishOptions,
    *,
    augment: Mapping[str, Augment] | None = None,
    memory: BatchMemory | None = None,
) -> dict[str, Array | Ragged]:
    """Makes a batch of stored features model-ready: decoded, augmented, normalized, padded.

    Args:
        features: the features' descriptions; their order is the result's.
        columns: the columns of each of their parts, and the rows' keys where they are wanted.
        options: the forms of images and texts.
        augment: changes of images, by feature; the boxes of an image move with it.
        memory: memory for large arrays; None: each its own.

    Returns:
        By the parts' names, in the order of `options.element_spec`: arrays [rows, …]; strings as object arrays of
        bytes; ragged texts as `Ragged`. No rows give arrays of no rows.

    Raises:
        RowError: a row does not fit its feature's description.
        DatasetError: bfloat16 needs ml_dtypes, which is not installed.
    """
    batch = _Batch(features, columns, options, augment or {}, np.empty if memory is None else memory.empty)
    # Images come first: they move their boxes.
    order = sorted(features, key=lambda name: features[name]["kind"] not in IMAGES)
    ready = {name: _FINISH[features[name]["kind"]](batch, name, features[name]) for name in order}
    named = {part_name(name, part): value for name in features for part, value in ready[name].items()}
    return {**named, KEY: strings(columns[KEY])} if KEY in columns else named


class _Batch:
    """The arguments of `finish`, and the boxes that images move."""

    def __init__(
        self,
        features: Features,
        columns: Mapping[str, Column],
        options: FinishOptions,
        augment: Mapping[str, Augment],
        empty: Empty,
    ) -> None:
        self.features, self.columns, self.options, self.augment, self.empty = features, columns, options, augment, empty
        lists = (name for name, description in features.items() if description["kind"] == "boxes")
        self.boxes = {name: _boxes(name, columns[name]) for name in lists}

    def stored(self, name: str) -> dict[str, Any]:
        """Gives the columns of a feature, by part."""
        return {part: self.columns[part_name(name, part)] for part in stored_parts(self.features[name])}

    def images(self, name: str) -> ImageReader:
        """Gives the reader of a feature's images."""
        boxes = [rows for of, rows in self.boxes.items() if self.features[of]["image"] == name]
        augment = self.augment.get(name)
        return ImageReader(name, self.features[name], self.options.dtype, augment, boxes, self.empty)


def _boxes(name: str, column: Any) -> Ragged:
    """Boxes of four numbers, float32 [boxes, 4], that may be written to."""
    values, splits = column
    wrong = np.flatnonzero(splits % BOX)
    if len(wrong):
        row = int(wrong[0]) - 1
        raise RowError(row, f"'{name}' holds {splits[row + 1] - splits[row]} numbers, which are no boxes of {BOX}")
    return Ragged(np.array(values, np.float32).reshape(-1, BOX), splits // BOX)


def _image(batch: _Batch, name: str, description: Description) -> Parts:
    stored = batch.stored(name)
    ready = batch.images(name).images(stored[""], stored.get("orientation"))
    return {**ready, "missing": stored["missing"]} if "missing" in stored else ready


def _image_sequence(batch: _Batch, name: str, description: Description) -> Parts:
    rows: Any = batch.columns[name]
    return _with_length(description, rows, lambda length: batch.images(name).sequences(rows, length))


def _text(batch: _Batch, name: str, description: Description) -> Parts:
    return texts(name, description, batch.stored(name), batch.options, batch.empty)


def _categories(batch: _Batch, name: str, description: Description) -> Parts:
    rows: Any = batch.columns[name]
    if description["read"] == "multi_hot":
        return {"": _multi_hot(name, rows, description["vocabulary_size"], batch.empty)}
    return _padded(batch, description, rows, description["padding_id"])


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


def _list(batch: _Batch, name: str, description: Description) -> Parts:
    rows: Any = batch.columns[name]
    return _padded(batch, description, Ragged(_array(rows.values), rows.splits))


def _moved_boxes(batch: _Batch, name: str, description: Description) -> Parts:
    return _padded(batch, description, batch.boxes[name])


def _padded(batch: _Batch, description: Description, rows: Ragged, padding: Any = None) -> Parts:
    filling = padding if padding is not None else b"" if rows.values.dtype == object else 0
    return _with_length(description, rows, lambda length: padded(rows, length, filling, batch.empty))


def _with_length(description: Description, rows: Any, full: Callable[[int | None], Array]) -> Parts:
    """Lists of the length that all have; or as wide as their limit, and their lengths."""
    if description["length"] != "varying":
        return {"": full(description["length"])}
    return {"": full(description["max_length"]), "length": rows.lengths()}


def _raw(batch: _Batch, name: str, description: Description) -> Parts:
    return (_list if "length" in description else _values)(batch, name, description)


def _own(batch: _Batch, name: str, description: Description) -> Parts:
    if description["shape"] is not None:
        return _values(batch, name, description)
    rows: Any = batch.columns[name]
    return {"": _padded(batch, {"length": "varying", "max_length": None}, Ragged(_array(rows.values), rows.splits))[""]}


def _values(batch: _Batch, name: str, description: Description) -> Parts:
    return {part: _array(values) for part, values in batch.stored(name).items()}


def _array(values: Any) -> Array:
    """Values as an array: bytes, or views of them, as `bytes`."""
    return strings(values) if isinstance(values, list) or values.dtype == object else values


_FINISH: Mapping[str, Callable[[_Batch, str, Description], Parts]] = {
    "image": _image,
    "image_sequence": _image_sequence,
    "boxes": _moved_boxes,
    "text": _text,
    "category": _values,
    "categories": _categories,
    "number": _values,
    "numbers": _list,
    "raw": _raw,
    "own": _own,
}
