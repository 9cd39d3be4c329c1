"""Descriptions of features for tests that need some of their keys alone."""

from typing import Any

_PIXELS = {"stored": "bytes", "dtype": "uint8", "offset": [0.0] * 3, "scale": [1.0] * 3}
_IDS = {"vocabulary_size": 9, "unknown_id": 1, "first_id": 2}
_LIST = {"length": "varying", "max_length": None}
OTHER_KEYS: dict[str, dict[str, Any]] = {
    "image": _PIXELS,
    "image_sequence": _PIXELS,
    "boxes": {"stored": "float32", **_LIST},
    "keypoints": {"stored": "float32", **_LIST},
    "text": {"stored": "int64", "padding_id": 0, **_LIST, **_IDS},
    "category": {"stored": "int64", **_IDS},
    "categories": {"padding_id": 0, **_LIST, **_IDS},
    "number": {"normalize": "none"},
    "numbers": {"normalize": "none"},
    "own": {"shape": []},
}
"""Keys of a whole description, by kind."""


def whole(description: dict[str, Any]) -> dict[str, Any]:
    """Adds the keys that a description lacks."""
    return OTHER_KEYS.get(description["kind"], {}) | description
