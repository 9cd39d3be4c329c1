r"""JSON as Python's objects: of lines that do not fit a schema, and of JSON files inside and beside others.

>>> load_json(b'{"text": "a\xff"}')
{'text': 'a\udcff'}
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from recordmill.pipeline.sources.typing.faults import Fault
from recordmill.pipeline.sources.typing.fields import cuts

MINUS_ZERO = re.compile(rb"-0(?![.\deE])")
DIGITS = 80  # a longer integer is beyond every type, and Python refuses to convert more than 4,300


class Repeating(dict[str, Any]):
    """A JSON object in which keys come twice; each has its last value."""

    twice: frozenset[str]

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Makes a plain dictionary where no key comes twice."""
        row = dict(pairs)
        if len(row) == len(pairs):
            return row
        repeating, counts = cls(row), Counter(key for key, _ in pairs)
        repeating.twice = frozenset(key for key, count in counts.items() if count > 1)
        return repeating


def comes_twice(value: Any, name: str) -> bool:
    """Whether a key on the way to a column, as `fields.python_field` goes, comes twice in its object."""
    if isinstance(value, list):
        return any(comes_twice(item, name) for item in value)
    for outer, rest in cuts(name) if isinstance(value, dict) else ():
        if outer in value:
            if isinstance(value, Repeating) and outer in value.twice:
                return True
            return rest is not None and comes_twice(value[outer], rest)
    return False


def load_json(
    data: bytes,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
    *,
    signed_zero: bool = False,
) -> Any:
    """Parses JSON; bytes that are not UTF-8 come as surrogates, of an integer its first `DIGITS` characters.

    With `signed_zero`, the integer `-0` comes as `Decimal("-0")`, which is -0.0 as a number.

    Raises:
        json.JSONDecodeError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    text = data.decode("utf-8", "surrogateescape")
    parse_int = _signed if signed_zero and MINUS_ZERO.search(data) else None
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook, parse_int=parse_int)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of more digits than Python converts
        return json.loads(text, object_pairs_hook=object_pairs_hook, parse_int=_signed if parse_int else _shortened)


def _shortened(digits: str) -> int:
    return int(digits[:DIGITS])


def _signed(digits: str) -> int | Decimal:
    return Decimal(digits) if digits == "-0" else _shortened(digits)


def json_object(data: bytes, what: str) -> dict[str, Any] | Fault:
    """Parses one JSON object, or says what is wrong with it, for a message that begins with `what`."""
    try:
        row = load_json(data)
    except json.JSONDecodeError as error:
        return Fault("malformed_row", f"{what} is no JSON object: {error.msg}, character {error.pos + 1}")
    except RecursionError:
        return Fault("malformed_row", f"{what} is no JSON object that is read: it is nested too deeply")
    return row if isinstance(row, dict) else Fault("malformed_row", f"{what} is no JSON object")
