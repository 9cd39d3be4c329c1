"""The ids of words from one version to another: which are new, lost, or moved.

>>> compare_ids({"cat": 0, "dog": 1}, {"dog": 0, "fox": 1})
IdChanges(gained=['fox'], lost=['cat'], moved=['dog'])
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.dataset.version import Ids, read_vocabulary, read_words
from recordmill.pipeline.errors import DatasetError
from recordmill.transforms.contract.kinds import read_description
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.text import TextDescription

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


def ids_of(folder: Location, description: Description, feature: str) -> dict[str, int]:
    """Reads the ids of a feature's words, without special entries, as the data spells them; empty without a vocabulary.

    Raises:
        DatasetError: as `read_vocabulary`.
    """
    if not isinstance(description, Ids) or description.vocabulary is None:
        return {}
    first = description.first_id or 0
    if not isinstance(description, TextDescription) and description.shown:
        words = read_words(folder, description.vocabulary)
    else:
        words = read_vocabulary(folder, description, feature)[first:]
    return {word: id_ for id_, word in enumerate(words, first) if word}


def first_few(words: Sequence[str]) -> str:
    """Returns the first few words in brackets, for a message; nothing for no words."""
    return f" ({', '.join(words[:SHOWN])}{', …' if len(words) > SHOWN else ''})" if words else ""


def id_changes(before: Manifest, old: Location, after: Mapping[str, Description], new: Location) -> Iterator[str]:
    """Returns a line for each feature some of whose words have another id than before, are new, or have none any more.

    Names of classes are shown, words of texts are not: a message holds no value of a row.
    """
    for name, description in after.items():
        if name in before.features and isinstance(description, Ids) and description.vocabulary is not None:
            with suppress(DatasetError):  # a damaged version is no reason to build none
                ids = ids_of(old, read_description(before.features[name]), name)
                is_shown = not isinstance(description, TextDescription)
                if changes := "; ".join(_changes(ids, ids_of(new, description, name), is_shown)):
                    yield f"{name}: {changes}"


def _changes(before: Mapping[str, int], after: Mapping[str, int], is_shown: bool) -> Iterator[str]:
    new, lost, moved = compare_ids(before, after)
    if before and new:
        yield f"{len(new):,} new{first_few(new) if is_shown else ''}"
    if lost:
        yield f"{len(lost):,} without an id now{first_few(lost) if is_shown else ''}"
    if moved:
        yield f"{len(moved):,} of {len(before):,} have another id than before, so a model needs training anew"


def names_gone(
    kept: Mapping[str, tuple[str, ...]],
    label: str | None,
    statistics: Mapping[str, Mapping[str, Any]],
    labels: Mapping[int, int],
) -> Iterator[str]:
    """Returns a line for each feature that keeps ids of names which the data no longer holds.

    The label learns from all splits, the others from the train split. `labels` counts its records by id, and is empty
    where a user's function made another label.
    """
    for name, names in kept.items():
        words = statistics.get(name, {}).get("gone", [])
        if name == label and labels:
            words = [word for id_, word in enumerate(names) if not labels.get(id_)]
        if words:
            where = "data" if name == label else "train split"
            yield f"{name}: {len(words):,} not in the {where} any more, their ids are kept{first_few(words)}"
