"""Stored values to model-ready NumPy arrays, bit for bit as `transforms.engines.tensorflow_features`.

Images scaled by the reader may differ by one level (`images.image_read`). `KINDS` lists a function for each kind.

>>> from recordmill.transforms.values.values_stored import NumberDescription
>>> price = NumberDescription(stored="float32", normalize="none")
>>> parsed = {"price": np.array([1.5], np.float32), "key": [b"row-0"]}
>>> finish({"price": price}, parsed, FinishOptions())
{'price': array([1.5], dtype=float32), 'key': array([b'row-0'], dtype=object)}
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recordmill.transforms.base.buffers import Array, BatchMemory, Empty
from recordmill.transforms.base.description import Description
from recordmill.transforms.base.stored import KEY, Column, FinishOptions, Ragged, RowError, part_name
from recordmill.transforms.images.augment.base import Lying, MovedBoxes, MovedKeypoints
from recordmill.transforms.images.augment.chain import Augment
from recordmill.transforms.images.image_read import ImageReader
from recordmill.transforms.texts.text_read import Shares, padded, strings, texts

if TYPE_CHECKING:  # a worker loads the kinds that it reads
    from recordmill.transforms.base.arrays import ArrayDescription
    from recordmill.transforms.images.image_stored import AnyImages, ImageDescription, ImageSequenceDescription
    from recordmill.transforms.images.places_stored import PlacesDescription
    from recordmill.transforms.texts.text_stored import TextDescription, TokenLabelsDescription
    from recordmill.transforms.values.values_stored import CategoriesDescription, OwnDescription, RawDescription

Features: TypeAlias = Mapping[str, Description]
Parts: TypeAlias = Mapping[str, Any]  # columns or arrays, by part


def finish(
    features: Features,
    columns: Mapping[str, Column],
    options: FinishOptions,
    *,
    augment: Mapping[str, Augment] | None = None,
    shares: Shares = 0.0,
    memory: BatchMemory | None = None,
) -> dict[str, Array | Ragged]:
    """Makes a batch of stored features model-ready: decoded, augmented, normalized, padded.

    Args:
        features: descriptions, in the order of the result.
        columns: the columns of their parts, and optionally the rows' keys.
        options: the forms of images and texts.
        augment: changes of images, by feature; an image's boxes and key points move with it.
        shares: float64 [rows] in [0, 1): choose a text of each row if not all are read; 0 chooses the first.
        memory: for large arrays; None: each its own.

    Returns arrays [rows, …] by part name; strings as object arrays of bytes, ragged texts as `Ragged`; zero rows are
    valid. Raises: RowError: a row does not fit its feature's description. DatasetError: bfloat16 without ml_dtypes.
    """
    empty = np.empty if memory is None else memory.empty
    batch = Batch(features, columns, options, augment or {}, empty, shares)
    # Images come first: they move what lies on them.
    order = sorted(features, key=lambda name: features[name].as_image is None)
    ready = {name: KINDS[features[name].kind](batch, name, features[name]) for name in order}
    named = {part_name(name, part): value for name in features for part, value in ready[name].items()}
    return {**named, KEY: strings(columns[KEY])} if KEY in columns else named


@dataclass
class Batch:
    """The arguments of `finish`, and what moves with images."""

    features: Features
    columns: Mapping[str, Column]
    options: FinishOptions
    augment: Mapping[str, Augment]
    empty: Empty
    shares: Shares

    @cached_property
    def places(self) -> dict[str, Ragged]:
        """The writable objects of each feature of boxes or key points, float32 [objects, *shape]."""
        places = dict[str, Ragged]()
        for name, each in self.features.items():
            if description := each.as_places:
                column: Any = self.columns[name]
                (values, splits), size = column, math.prod(description.shape)
                for row in (np.flatnonzero(splits % size)[:1] - 1).tolist():
                    held = f"{splits[row + 1] - splits[row]} numbers, not {description.kind} of {size}"
                    raise RowError(row, f"'{name}' holds {held}")
                places[name] = Ragged(np.array(values, np.float32).reshape(-1, *description.shape), splits // size)
        return places

    def stored(self, name: str, description: Description) -> dict[str, Any]:
        """Returns a feature's columns, by part."""
        return {part: self.columns[part_name(name, part)] for part in description.parts}

    def images(self, name: str, description: "AnyImages") -> ImageReader:
        """Returns the reader of a feature's images."""
        on_it = {of: some for of, each in self.features.items() if each.lies_on == name and (some := each.as_places)}
        lying = [_lying(each, self.places[of]) for of, each in on_it.items()]
        dtype = None if description.is_mask else self.options.dtype
        return ImageReader(name, description, dtype, self.augment.get(name), lying, self.empty)


def _lying(description: "PlacesDescription", rows: Ragged) -> Callable[[int], Lying]:
    """Returns a function from a row to its objects, to be moved in place."""
    moved: Callable[[Array], Lying] = MovedBoxes
    if description.partners is not None:
        moved = partial(MovedKeypoints, partners=description.partners)
    return lambda row: moved(rows.row(row))


def _values(batch: Batch, name: str, description: Description) -> Parts:
    return {part: _array(values) for part, values in batch.stored(name, description).items()}


def _array(values: Any) -> Array:
    """Returns values as an array, with bytes or views of them as `bytes`."""
    return strings(values) if isinstance(values, list) or values.dtype == object else values


def _list(batch: Batch, name: str, description: Any) -> Parts:
    rows: Any = batch.columns[name]
    return _padded(batch, description, Ragged(_array(rows.values), rows.splits))


def _padded(batch: Batch, description: Any, rows: Ragged) -> Parts:
    return _with_length(description, rows, lambda length: padded(rows, length, description.padding, batch.empty))


def _with_length(description: Any, rows: Ragged, full: Callable[[int | None], Array]) -> Parts:
    """Returns lists of a common length; or padded to their limit, with their lengths."""
    if isinstance(description.length, int):
        return {"": full(description.length)}
    return {"": full(description.max_length), "length": rows.lengths()}


def _image(batch: Batch, name: str, description: "ImageDescription") -> Parts:
    stored = batch.stored(name, description)
    ready = batch.images(name, description).images(stored[""], stored.get("orientation"))
    return {**ready, "missing": stored["missing"]} if "missing" in stored else ready


def _image_sequence(batch: Batch, name: str, description: "ImageSequenceDescription") -> Parts:
    rows: Any = batch.columns[name]

    def read(length: int | None) -> Array:
        pixels = batch.images(name, description).sequences(rows, length)
        return pixels[..., 0] if description.is_mask else pixels

    return _with_length(description, rows, read)


def _places(batch: Batch, name: str, description: "PlacesDescription") -> Parts:
    return _padded(batch, description, batch.places[name])


def _text(batch: Batch, name: str, description: "TextDescription") -> Parts:
    return texts(name, description, batch.stored(name, description), batch.options, batch.empty, batch.shares)


def _labels(batch: Batch, name: str, description: "TokenLabelsDescription") -> Parts:
    return texts(name, description, {"": batch.columns[name]}, replace(batch.options, masks=False), batch.empty)


def _categories(batch: Batch, name: str, description: "CategoriesDescription") -> Parts:
    if description.read != "multi_hot":
        return _list(batch, name, description)
    rows: Any = batch.columns[name]
    lengths, size = rows.lengths(), description.vocabulary_size
    of_row = np.repeat(np.arange(len(lengths)), lengths)
    for wrong in np.flatnonzero(rows.values >= size)[:1]:
        raise RowError(int(of_row[wrong]), f"'{name}' holds the id {rows.values[wrong]}, of {size} ids")
    hot = batch.empty((len(lengths), size), np.float32)
    hot.fill(0)
    known = rows.values >= 0
    hot[of_row[known], rows.values[known]] = 1
    return {"": hot}


def _arrays(batch: Batch, name: str, description: "ArrayDescription") -> Parts:
    stored, layout = batch.stored(name, description), description.layout
    for row, data in enumerate(stored[""]):
        if fault := layout.fault(len(data)):
            raise RowError(row, f"'{name}' holds {fault}")
    if layout.is_ragged:
        entries = np.frombuffer(b"".join(stored[""]), layout.numpy).reshape(-1, *layout.inner)
        ends = np.cumsum([0, *(len(data) // layout.unit for data in stored[""])], dtype=np.int64)
        return _padded(batch, description, Ragged(entries, ends))
    full = batch.empty((len(stored[""]), *layout.inner), layout.numpy)
    rows = full.view(np.uint8).reshape(len(stored[""]), layout.unit)
    for row, data in enumerate(stored[""]):
        rows[row] = np.frombuffer(data, np.uint8)
    return {**stored, "": full}


def _raw(batch: Batch, name: str, description: "RawDescription") -> Parts:
    return (_values if description.length is None else _list)(batch, name, description)


def _own(batch: Batch, name: str, description: "OwnDescription") -> Parts:
    if description.shape is not None:
        return _values(batch, name, description)
    rows: Any = batch.columns[name]
    return {"": padded(Ragged(_array(rows.values), rows.splits), None, description.padding, batch.empty)}


KINDS: Mapping[str, Callable[[Batch, str, Any], Parts]] = {
    "image": _image, "image_sequence": _image_sequence, "mask": _image, "masks": _image_sequence,
    "boxes": _places, "keypoints": _places,
    "text": _text, "texts": _text, "pair": _text, "chat": _text, "token_labels": _labels,
    "category": _values, "categories": _categories, "number": _values, "numbers": _list,
    "array": _arrays, "raw": _raw, "own": _own,
}  # fmt: skip
"""By kind: the function of a batch, a feature's name and its description."""
