"""Decoded values as a line for people, and as JSON.

>>> shown([1.5, None, "cat"])
'1.5, -, cat'
>>> to_json([1.5, None, b"cat", float("nan")])
[1.5, None, 'cat', 'NaN']
"""

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

from recordmill.pipeline.inspection.images import StoredImage
from recordmill.pipeline.inspection.records import Record
from recordmill.pipeline.inspection.values import Value
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds.boxes import Box
from recordmill.transforms.contract.kinds.number import Bucket
from recordmill.transforms.contract.kinds.text import DecodedText

LONGEST = 160
"""Characters of a value that are shown; the rest is cut."""
MOST = 8
"""Values of a list that are shown."""
MISSING = "-"
NUMBER = ".7g"
"""The digits that a float32 has."""


def lines_of(record: Record) -> Iterator[str]:
    """Describes a record for people: its place, then a line for each feature."""
    span = f", span {record.span}" if record.span else ""
    yield f"{record.key}  ({record.split}, position {record.position:,}{span})"
    names = [cut(name) for name in record.values]
    width = max(map(len, names), default=0)
    for name, value in zip(names, record.values.values(), strict=True):
        yield f"  {name:<{width}}  {shown(value)}"


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


def record_to_json(record: Record) -> dict[str, Any]:
    """Returns a record as a JSON object: its place, and the values by feature."""
    return {
        "key": record.key,
        "split": record.split,
        "position": record.position,
        "span": record.span,
        "shard": record.shard,
        "values": {name: to_json(value) for name, value in record.values.items()},
    }


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
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"


def _text_of(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
