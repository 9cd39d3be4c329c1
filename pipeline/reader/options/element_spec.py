"""Names, shapes and dtypes of an input's batches, known before anything is read."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from recordmill.transforms.contract.finish_options import FinishOptions
from recordmill.transforms.contract.stored import KEY, Description, part_name

Shape = tuple[int | None, ...]


class ArraySpec(NamedTuple):
    """One array of a batch; in `ragged` ones the second dimension differs from row to row."""

    shape: Shape
    """The first is the rows; None where it differs from batch to batch."""
    dtype: str
    """A NumPy name, `bfloat16`, or `bytes`: an object array of bytes, which TensorFlow has as strings."""
    ragged: bool = False


ImageShape = Callable[[str, Any], Shape]
"""Gives the shape after augmentation, by a feature and its images' shape, [height, width, channels]."""


def feature_specs(
    features: Mapping[str, Description],
    options: FinishOptions,
    rows: int | None,
    image_shape: ImageShape,
    *,
    with_key: bool = False,
) -> dict[str, ArraySpec]:
    """Gives the arrays of features by their parts' names, in the order of the batches."""
    specs: dict[str, ArraySpec] = {}
    for name, description in features.items():
        feature = _Feature(name, description, options, image_shape)
        parts = _SPECS[description["kind"]](feature)
        specs |= {part_name(name, part): spec._replace(shape=(rows, *spec.shape)) for part, spec in parts.items()}
    return {**specs, KEY: ArraySpec((rows,), "bytes")} if with_key else specs


class _Feature(NamedTuple):
    name: str
    description: Description
    options: FinishOptions
    image_shape: ImageShape


Parts = dict[str, ArraySpec]
"""The arrays of one row, by part."""


def _image(feature: _Feature) -> Parts:
    stored = tuple(feature.description["shape"])
    dtype = feature.options.dtype or feature.description["dtype"]
    parts = {"": ArraySpec(feature.image_shape(feature.name, stored), dtype)}
    if None in stored:
        parts["shape"] = ArraySpec((2,), "int64")
    return parts | {"missing": ArraySpec((), "int64")} if feature.description.get("optional") else parts


def _image_sequence(feature: _Feature) -> Parts:
    images = _image(feature)[""]
    return _list(feature, images.shape, images.dtype)


def _list(feature: _Feature, values: Shape, dtype: str) -> Parts:
    length = feature.description["length"]
    if length != "varying":
        return {"": ArraySpec((length, *values), dtype)}
    return {"": ArraySpec((feature.description["max_length"], *values), dtype), "length": ArraySpec((), "int64")}


def _text(feature: _Feature) -> Parts:
    description, options = feature.description, feature.options
    packed = description.get("packed")
    if packed or options.text == "packed":
        shape = (packed or options.length_of(description),)
        return {
            "": ArraySpec(shape, "int64"),
            "segments": ArraySpec(shape, "int32"),
            "positions": ArraySpec(shape, "int32"),
        }
    ragged = options.text == "ragged"
    shape = (None if ragged else options.length_of(description),)
    parts = {"": ArraySpec(shape, "int64", ragged)}
    if description.get("keep_length"):
        parts["length"] = ArraySpec((), "int64")
    return parts | {"mask": ArraySpec(shape, "bool")} if options.masks and not ragged else parts


def _categories(feature: _Feature) -> Parts:
    if feature.description["read"] == "multi_hot":
        return {"": ArraySpec((feature.description["vocabulary_size"],), "float32")}
    return _list(feature, (), "int64")


def _number(feature: _Feature) -> Parts:
    parts = {"": ArraySpec((), feature.description["stored"])}
    return parts | {"missing": ArraySpec((), "int64")} if feature.description.get("indicator") else parts


def _raw(feature: _Feature) -> Parts:
    if "length" in feature.description:
        return _list(feature, (), feature.description["stored"])
    return {"": ArraySpec((), feature.description["stored"])}


def _own(feature: _Feature) -> Parts:
    shape = feature.description["shape"]
    return {"": ArraySpec((None,) if shape is None else tuple(shape), feature.description["stored"])}


_SPECS: Mapping[str, Callable[[_Feature], Parts]] = {
    "image": _image,
    "image_sequence": _image_sequence,
    "boxes": lambda feature: _list(feature, (4,), "float32"),
    "text": _text,
    "category": lambda feature: {"": ArraySpec((), "int64")},
    "categories": _categories,
    "number": _number,
    "numbers": lambda feature: _list(feature, (), feature.description["stored"]),
    "raw": _raw,
    "own": _own,
}
