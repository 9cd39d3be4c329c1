"""The graphs of the kinds of features: one module and one line each."""

from collections.abc import Mapping

from recordmill.transforms.tensorflow import (
    boxes,
    categories,
    category,
    image,
    image_sequence,
    number,
    numbers,
    own,
    raw,
    text,
)
from recordmill.transforms.tensorflow.kind import Kind

KINDS: Mapping[str, Kind] = {
    "image": image,
    "image_sequence": image_sequence,
    "boxes": boxes,
    "text": text,
    "category": category,
    "categories": categories,
    "number": number,
    "numbers": numbers,
    "raw": raw,
    "own": own,
}
