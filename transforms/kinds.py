"""The graphs of the kinds of features: one module and one line each."""

from collections.abc import Mapping

from transforms import category, image, number, raw, text
from transforms.kind import Kind

KINDS: Mapping[str, Kind] = {
    "image": image,
    "text": text,
    "category": category,
    "number": number,
    "raw": raw,
}
