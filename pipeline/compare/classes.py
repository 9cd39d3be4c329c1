"""The differences between the ids of two vocabularies.

>>> compare_ids({"cat": 0, "dog": 1}, {"dog": 0, "fox": 1})
IdChanges(gained=['fox'], lost=['cat'], moved=['dog'])
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SHOWN = 5


class IdChanges(NamedTuple):
    """Words by the way in which their ids differ."""

    gained: list[str]
    """Words that had no id."""
    lost: list[str]
    """Words that have no id any more."""
    moved: list[str]
    """Words that have another id than before."""


def compare_ids(before: Mapping[str, int], after: Mapping[str, int]) -> IdChanges:
    """Compares the ids of words, in the order of the ids."""
    return IdChanges(
        [word for word in after if word not in before],
        [word for word in before if word not in after],
        [word for word, id_ in before.items() if after.get(word, id_) != id_],
    )


def first_few(words: Sequence[str]) -> str:
    """Gives the first few words in brackets, for a message; nothing for no words."""
    return f" ({', '.join(words[:SHOWN])}{', …' if len(words) > SHOWN else ''})" if words else ""
