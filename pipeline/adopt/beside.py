"""Reads the files beside TFRecords: `features.json` of TensorFlow Datasets, and files with class names."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.sources.class_names import read_label_map, read_names

Names = dict[int, str] | list[str]


@dataclass(frozen=True)
class Said:
    """A feature in `features.json`."""

    kind: str  # `image`, `classLabel`, `boundingBox`, `tensor`, `text`, …
    shape: tuple[int | None, ...]  # sides of a record's values; None is any number
    dtype: str
    encoding: str
    names: Names | None = None  # the names of classes
    sides: tuple[int | None, ...] = ()  # an image's height, width and channels


def said_of(beside: Mapping[str, bytes]) -> dict[str, Said]:
    """Reads `features.json`, by the records' features; empty without it, or if it is broken."""
    with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
        features = json.loads(beside["features.json"])["featuresDict"]["features"]
        return dict(_leaves(features, "", (), beside))
    return {}


def names_of(beside: Mapping[str, bytes]) -> Names | None:
    """Returns the class names of `label_map.pbtxt`, `labels.txt` or `classes.txt`; None without one."""
    for name, data in beside.items():
        if _holds_names(name):
            with suppress(ValueError, RecursionError):
                text = data.decode("utf-8-sig")
                return read_label_map(text) if name.endswith(".pbtxt") else read_names(text, is_json=False)
    return None


def unread(beside: Mapping[str, bytes]) -> Iterator[str]:
    """Yields files that were to say something, and do not."""
    for name, data in beside.items():
        has_names = _holds_names(name) and names_of({name: data}) is None
        if has_names or (name == "features.json" and not said_of(beside)):
            yield name


def _holds_names(file: str) -> bool:
    return file.endswith(".pbtxt") or file in ("labels.txt", "classes.txt")


def _leaves(
    features: Mapping[str, Any], prefix: str, outer: tuple[int | None, ...], beside: Mapping[str, bytes]
) -> Iterator[tuple[str, Said]]:
    """Yields the features by their names in records; `outer` are the sides of sequences around them."""
    for name, feature in features.items():
        yield from _leaf(feature, f"{prefix}{name}", outer, beside)


def _leaf(
    feature: Mapping[str, Any], name: str, outer: tuple[int | None, ...], beside: Mapping[str, bytes]
) -> Iterator[tuple[str, Said]]:
    if "featuresDict" in feature:
        yield from _leaves(feature["featuresDict"]["features"], f"{name}/", outer, beside)
    elif "sequence" in feature:
        length = int(feature["sequence"].get("length", -1))
        yield from _leaf(feature["sequence"]["feature"], name, (*outer, length if length >= 0 else None), beside)
    else:
        kind = next((each for each in feature if isinstance(feature[each], dict)), "")
        options = feature.get(kind, {})
        sides = [int(side) for side in options.get("shape", {}).get("dimensions", ())]
        inner = tuple(None if side < 0 else side for side in sides)
        names: Names | None = None
        if kind == "classLabel":
            lines = beside.get(f"{name.replace('/', '-')}.labels.txt", beside.get(f"{name}.labels.txt", b"")).decode()
            names = lines.splitlines() or list(map(str, range(int(options.get("numClasses", 0)))))
        shape = outer if kind == "image" else (*outer, *inner)
        sizes = inner if kind == "image" else ()
        yield name, Said(kind, shape, options.get("dtype", ""), options.get("encoding", "none").lower(), names, sizes)
