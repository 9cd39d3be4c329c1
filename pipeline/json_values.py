"""Untrusted JSON: parsed within bounds, and read as declared types. Arguments: checked by their annotations.

A type is a dataclass, a TypedDict, `Any`, `str`, `bool`, `int`, `float`, `Count`, a list, tuple or dict of types, or a
union of types. `Annotated[str, check]` is a text (value or dict key) that `check` returns or refuses with DatasetError;
`Annotated[str, texts]` is one of some texts. Numbers are finite and fit int64. Undeclared keys are allowed: a later
Recordmill may write them.

>>> read_as([3, 4], tuple[Count, ...], "`shape`")
(3, 4)
>>> read_as(-1, Count, "`records`")
Traceback (most recent call last):
...
recordmill.pipeline.errors.DatasetError: `records` is -1, of another type or out of range
"""

import functools
import json
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut

WHOLE = range(-(2**63), 2**63)  # int64
COUNTS = range(2**63)
Count: TypeAlias = Annotated[int, COUNTS]  # a whole number from 0
Positive: TypeAlias = Annotated[int, COUNTS[1:]]
UNKNOWN_FIELDS = "unknown_fields"  # the field of a dataclass for JSON keys beyond its declared fields and properties
MOST_CONTAINERS = 1 << 20  # lists and objects of a file: up to 232 bytes of memory each, for 3 bytes of text
WORDS = {bool: "True or False", int: "a whole number", str: "a string", Path: "a Path", types.NoneType: "None"}
WORDS |= dict.fromkeys((Sequence[str], Collection[str]), "a list of names") | {Sequence[int]: "a list of whole numbers"}
WORDS |= {each: f"a whole number, at least {number}" for number, each in enumerate((Count, Positive))}
MOST_NESTED = 50  # far below Python's recursion limit of 1,000 calls


class NewerFormatError(DatasetError):
    """A file has a newer format than this Recordmill knows."""


def check_format(value: Any, known: int, what: str = "it") -> None:
    """Refuses a newer Recordmill's format number. Raises: NewerFormatError; DatasetError: not a number."""
    written = value.get("format", known) if isinstance(value, Mapping) else known
    if read_as(written, Count, "format") > known:
        newer = f"a newer Recordmill (format {written}, this one knows {known})"
        raise NewerFormatError(f"{what} was written by {newer}: upgrade Recordmill")


def parse_json(data: bytes, most: int = MOST_CONTAINERS) -> Any:
    """Parses JSON. Raises: DatasetError: it is invalid, too deep, or has more than `most` lists and objects."""
    if (containers := data.count(b"[") + data.count(b"{")) > most:
        raise DatasetError(f"it holds {containers:,} lists and objects; the limit is {most:,}")
    try:
        return json.loads(data)
    except RecursionError:
        raise DatasetError("its lists and objects are nested too deep") from None
    except ValueError as error:  # not JSON, not UTF-8, or a number of more than 4,300 digits
        raise DatasetError(f"it is not JSON: {error}") from None


def read_as(value: Any, hint: Any, what: str) -> Any:
    """Converts a value of `parse_json` to a type: lists to declared tuples, objects to declared dataclasses.

    `what` names the value in messages; empty for a whole file. Raises: DatasetError: the value has another type, lacks
    a key, or is nested more than 50 deep.
    """
    for option, origin, kinds, has_fields in _options(hint):
        if option is Any:
            _check_any(value, what)
            return value
        if isinstance(value, Mapping) and has_fields:
            return _read_fields(value, option, what)
        if isinstance(value, Mapping) and origin in (dict, Mapping):
            keys = value if kinds[0] is str else [read_as(name, kinds[0], what) for name in value]
            return {name: read_as(value[name], kinds[1], _inner(what, name)) for name in keys}
        if isinstance(value, list | tuple) and origin in (list, tuple):
            each = kinds if origin is tuple and kinds[-1] is not Ellipsis else (kinds[0],) * len(value)
            if len(each) == len(value):
                return origin(read_as(item, kind, what) for item, kind in zip(value, each, strict=True))
        if origin is Annotated and type(value) is kinds[0]:
            if callable(kinds[1]):
                return _of_form(value, kinds[1], what)
            if value in kinds[1]:
                return value
        if origin is float and type(value) in (int, float) and _fits(value):
            return float(value)
        if type(value) is origin and _fits(value):
            return value
    shown = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else cut(repr(value))
    raise DatasetError(f"{cut(what) or 'it'} is {shown}, of another type or out of range")


def _of_form(text: str, check: Callable[[str], str], what: str) -> str:
    try:
        return check(text)
    except DatasetError as error:
        raise DatasetError(f"{cut(what)}: {error}") from None


@functools.cache
def _options(hint: Any) -> tuple[tuple[Any, Any, tuple[Any, ...], bool], ...]:
    """Returns a hint's alternatives, each with its origin, its arguments, and whether it has fields."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    return tuple(
        (each, typing.get_origin(each) or each, typing.get_args(each), is_dataclass(each) or typing.is_typeddict(each))
        for each in options
    )


def _inner(what: str, name: str) -> str:
    return f"{what}.{name}" if what else name


def _read_fields(values: Mapping[str, Any], kind: Any, what: str) -> Any:
    """Reads the fields of a dataclass or a TypedDict; a missing one gets its default, or is an error."""
    read: dict[str, Any] = {}
    for name, (hint, is_needed, plain) in _fields(kind).items():
        if name in values and name != UNKNOWN_FIELDS:
            value = values[name]
            is_plain = type(value) is plain and (plain is str or value in COUNTS)  # most values: three times as fast
            read[name] = value if is_plain else read_as(value, hint, _inner(what, name))
        elif is_needed:
            raise DatasetError(f"{cut(what) or 'it'} has no `{name}`")
    if len(read) < len(values):
        others = {name: value for name, value in values.items() if name not in read}
        for name, value in others.items():
            _check_any(value, _inner(what, name))
        if UNKNOWN_FIELDS in _fields(kind):
            read[UNKNOWN_FIELDS] = {name: value for name, value in others.items() if not hasattr(kind, name)}
    return kind(**read)


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool, type | None]]:
    """Returns each field's type, whether it is required, and `str` or `int` for a text or a count."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, hint in hints.items():
        if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
            hints[name] = typing.get_args(hint)[0]
    if is_dataclass(kind):  # its hints include class variables
        made = (each for each in fields(kind) if each.init)
        needed = {each.name: each.default is MISSING and each.default_factory is MISSING for each in made}
    else:
        needed = {name: name in kind.__required_keys__ for name in hints}
    plain = {str: str, Count: int}
    return {
        name: (hints[name], is_needed, next((plain[each] for each, *_ in _options(hints[name]) if each in plain), None))
        for name, is_needed in needed.items()
    }


def _check_any(value: Any, what: str, depth: int = 0) -> None:
    """Refuses deep nesting, which could not be shown, compared or rewritten, and numbers outside JSON."""
    if depth > MOST_NESTED:
        raise DatasetError(f"{cut(what)} is nested more than {MOST_NESTED} deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise DatasetError(f"{cut(what)} holds {value}, not a JSON number")
    if isinstance(value, list | tuple | Mapping):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_any(inner, what, depth + 1)


def _fits(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else type(value) is not int or value in WHOLE


def check_types(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    """Checks arguments by their annotations, NumPy's as Python's; quoted ones take any. Raises: DatasetError."""
    for name, value in values.items():
        if not _is_of(value, hint := hints.get(name, Any)):
            known = " or ".join(WORDS.get(option, f"a {kind.__name__}") for option, kind, *_ in _options(hint))
            raise DatasetError(f"{name} is {known}, got {cut(repr(value))}")


def _is_of(value: Any, hint: Any) -> bool:
    plain = value.tolist() if hasattr(value, "tolist") else value
    return any(_is_one(plain, *option[:3]) for option in _options(hint))


def _is_one(value: Any, option: Any, kind: Any, inner: tuple[Any, ...]) -> bool:
    if option is Any or isinstance(option, str) or (kind is Path and hasattr(value, "parent")):  # a URL's folder
        return True
    if kind is Annotated:
        return _is_of(value, inner[0]) and value in inner[1]
    if not isinstance(value, kind) or (kind, type(value)) == (int, bool):
        return bool(kind is float and type(value) is int)
    if isinstance(value, Mapping) and inner:
        return all(_is_of(name, inner[0]) and _is_of(each, inner[1]) for name, each in value.items())
    is_list = inner and isinstance(value, Collection)
    return not is_list or (not isinstance(value, str | bytes) and all(_is_of(each, inner[0]) for each in value))
