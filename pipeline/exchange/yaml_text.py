"""Writes plain values as YAML, for the header of a dataset card; a reading machine needs no YAML library for it.

>>> print(to_yaml({"tags": ["a b", "no"], "splits": [{"name": "train", "num_examples": 3}]}), end="")
tags:
- "a b"
- "no"
splits:
- name: train
  num_examples: 3
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from recordmill.pipeline.terminal_text import printable

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Words that a reader of YAML 1.1 takes for something else than a string."""


def to_yaml(value: dict[str, Any]) -> str:
    """Gives a mapping of strings, whole numbers, lists and mappings as YAML, in its order."""
    return "".join(f"{line}\n" for line in _mapping(value))


def _mapping(value: dict[str, Any]) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield f"{_scalar(key)}:"
            yield from (f"  {line}" for line in _mapping(item))
        elif isinstance(item, list):
            yield f"{_scalar(key)}:"
            yield from _items(item)
        else:
            yield f"{_scalar(key)}: {_scalar(item)}"


def _items(items: list[Any]) -> Iterator[str]:
    for item in items:
        first, *others = _mapping(item) if isinstance(item, dict) else [_scalar(item)]
        yield f"- {first}"
        yield from (f"  {line}" for line in others)


def _scalar(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(printable(value), ensure_ascii=False)
