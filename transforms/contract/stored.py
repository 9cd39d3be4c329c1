"""What lies in a record: the parts of each kind, by name, with their types; read by both engines of the reader.

A kind stores one value or several parts: the part "" is the feature itself, any other, such as `length`, is stored and
read under the name `part_name(feature, part)`.

>>> stored_parts({"kind": "number", "stored": "float32", "indicator": True})
{'': Stored(dtype='float32', shape=()), 'missing': Stored(dtype='int64', shape=())}
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

KEY = "key"
"""The Example's feature that holds the row's key; no feature of the spec has this name."""

IMAGES = ("image", "image_sequence")
"""The kinds that are pictures."""

Description = Mapping[str, Any]
"""A feature's description as `dataset.json` holds it."""


@dataclass(frozen=True)
class Stored:
    """The type of a part: `bytes`, `int64` or `float32`, and the shape of a row's values; None for a list."""

    dtype: str
    shape: tuple[int, ...] | None = ()


def part_name(feature: str, part: str) -> str:
    """The name of a part in a record: `caption` itself, `caption_length`."""
    return f"{feature}_{part}" if part else feature


def stored_parts(description: Description) -> dict[str, Stored]:
    """Gives what a feature stores, by part."""
    return _PARTS[description["kind"]](description)


def stored_features(features: Mapping[str, Description], *, with_key: bool = False) -> dict[str, Stored]:
    """Gives what the features store by the names in a record, and the row's key where it is asked for."""
    named = {
        part_name(name, part): stored
        for name, description in features.items()
        for part, stored in stored_parts(description).items()
    }
    return {**named, KEY: Stored("bytes")} if with_key else named


def _image(description: Description) -> dict[str, Stored]:
    parts = {"": Stored("bytes")}
    if description["encoding"] == "original":
        parts["orientation"] = Stored("int64")
    return parts | {"missing": Stored("int64")} if description.get("optional") else parts


def _text(description: Description) -> dict[str, Stored]:
    ids = {"": Stored("int64", None)}
    if "packed" in description:  # int32, little-endian: to read them takes a twentieth of an int64 list's time
        return {"": Stored("bytes")} | {"lengths": Stored("int64", None)}
    return ids | {"length": Stored("int64")} if description.get("keep_length") else ids


def _number(description: Description) -> dict[str, Stored]:
    value = {"": Stored(description["stored"])}
    return value | {"missing": Stored("int64")} if description.get("indicator") else value


def _raw(description: Description) -> dict[str, Stored]:
    return {"": Stored(description["stored"], None if "length" in description else ())}


def _own(description: Description) -> dict[str, Stored]:
    shape = description["shape"]
    return {"": Stored(description["stored"], None if shape is None else tuple(shape))}


def _list(description: Description) -> dict[str, Stored]:
    return {"": Stored(description["stored"], None)}


def _value(description: Description) -> dict[str, Stored]:
    return {"": Stored(description["stored"])}


_PARTS: Mapping[str, Callable[[Description], dict[str, Stored]]] = {
    "image": _image,
    "image_sequence": _list,
    "boxes": _list,
    "text": _text,
    "category": _value,
    "categories": _list,
    "number": _number,
    "numbers": _list,
    "raw": _raw,
    "own": _own,
}
