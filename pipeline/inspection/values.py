"""The values of records as plain Python (names instead of ids, texts, numbers in their own units), in a line, as JSON.

>>> Decoder(dataset).decode(columns, 0)  # doctest: +SKIP
{'image': StoredImage(PNG, 32x32, 2,311 bytes), 'label': 'cat', 'price': 12.5, 'caption': DecodedText(…)}
>>> shown([1.5, None, "cat"])
'1.5, -, cat'
>>> to_json([1.5, None, b"cat", float("nan")])
[1.5, None, 'cat', 'NaN']
"""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.dataset.vocabulary import Ids
from recordmill.pipeline.inspection.images import StoredImage
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import Decoding, Description
from recordmill.transforms.contract.kinds.boxes import Box
from recordmill.transforms.contract.kinds.number import Bucket
from recordmill.transforms.contract.kinds.text import DecodedText
from recordmill.transforms.contract.stored import Column, Ragged, part_name

Value: TypeAlias = Any
"""`str` of a category (`int` where ids are hashes), `float`, `Bucket`, `DecodedText`, `StoredImage`, `Box`,
`bytes`, `int`, a list of these, or None where the row lacks the value."""
LONGEST = 160
"""Characters of a value that are shown; the rest is cut."""
MOST = 8
"""Values of a list that are shown."""
MISSING = "-"
NUMBER = ".7g"
"""The digits that a float32 has."""


class Decoder:
    """Decodes the rows of parsed columns."""

    def __init__(self, dataset: DatasetVersion, features: Sequence[str] | None = None) -> None:
        """Takes the dataset, and the features to decode; None: all.

        Raises:
            DatasetError: a feature or its kind is unknown, or a vocabulary's file is damaged.
        """
        wanted = {name: dataset.manifest.feature(name) for name in features or dataset.features}
        self.descriptions = read_descriptions(wanted)
        statistics = dataset.manifest.statistics
        self._decoding = {
            name: Decoding(_vocabulary(dataset, name, description), statistics.get(name, {}), StoredImage)
            for name, description in self.descriptions.items()
        }

    def decode(self, columns: Mapping[str, Column], row: int) -> dict[str, Value]:
        """Returns a row's values by feature, of columns as `parse` returns them."""
        values = {}
        for name, description in self.descriptions.items():
            parts = {part: _cell(columns[part_name(name, part)], row) for part in description.parts()}
            values[name] = description.value(parts, self._decoding[name])
        return values


def _vocabulary(dataset: DatasetVersion, name: str, description: Description) -> list[str] | None:
    if not isinstance(description, Ids) or description.hash_buckets is not None:
        return None
    has_words = description.vocabulary is not None or getattr(description, "tokenizer", "") == "bytes"
    return dataset.vocabulary(name) if has_words else None


def _cell(column: Column, row: int) -> Any:
    if isinstance(column, Ragged):
        return column.values[int(column.splits[row]) : int(column.splits[row + 1])]
    return column[row]


def shown(value: Value) -> str:
    """Describes a value in one line of at most some 160 characters; a missing one is `-`."""
    match value:
        case None:
            return MISSING
        case float():
            return f"{value:{NUMBER}}"
        case Box():
            return f"[{' '.join(f'{side:.3g}' for side in value)}]"
        case list():
            return _list(value)
        case bytes():
            return _cut(_bytes(value))
        case _:
            return _cut(json.dumps(str(value), ensure_ascii=False)[1:-1])


def _list(values: list[Value]) -> str:
    flat = values[:MOST]
    separator = " | " if any(isinstance(value, DecodedText) for value in flat) else ", "
    rest = f", … ({len(values):,} values)" if len(values) > MOST else ""
    return _cut(separator.join(map(shown, flat)), len(rest)) + rest if values else "none"


def _bytes(value: bytes) -> str:
    try:
        return json.dumps(value.decode(), ensure_ascii=False)[1:-1]
    except UnicodeDecodeError:
        return f"{len(value):,} bytes: {value[:16].hex(' ')}{' …' if len(value) > 16 else ''}"


def _cut(text: str, spare: int = 0) -> str:
    most = LONGEST - spare
    return text if len(text) <= most else f"{text[: most - 1]}…"


def to_json(value: Value) -> Any:
    """Returns a value as JSON holds it.

    A text is its text, of hashes its ids; an image its format, size and number of bytes; a box its four sides; a bucket
    its id and bounds, None where it is open; bytes are text, or `{"base64": …}` where they are no UTF-8; a number that
    JSON does not know is "NaN", "Infinity" or "-Infinity".
    """
    match value:
        case float():
            return _number(value)
        case bytes():
            return _text_of(value)
        case DecodedText():
            return list(value.ids) if value.text is None else value.text
        case StoredImage():
            return {"format": value.format, "width": value.width, "height": value.height, "bytes": len(value.data)}
        case Bucket():
            low, high = (None if math.isinf(bound) else bound for bound in (value.low, value.high))
            return {"bucket": value.id, "from": low, "below": high}
        case list() | tuple():
            return [to_json(each) for each in value]
        case _:
            return value


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else json.dumps(value)


def _text_of(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
