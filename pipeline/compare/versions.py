"""The two compared versions, each with manifest, profiles and vocabularies; and the ids of words in both.

>>> compare_ids({"cat": 0, "dog": 1}, {"dog": 0, "fox": 1})
IdChanges(gained=['fox'], lost=['cat'], moved=['dog'])
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from recordmill.pipeline.dataset import profile
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest
from recordmill.pipeline.dataset.version import read_vocabulary, read_words
from recordmill.transforms.base.description import Description, Ids
from recordmill.transforms.base.kinds import read_description

SPECIAL = ("vocabulary_size", "first_id", "unknown_id", "oov_buckets", "begin_id", "end_id", "padding_id", "shown")
"""Parts of a description that decide the entries of a vocabulary, besides its file."""
SHOWN = 5  # words in a message


class SpanProfile(NamedTuple):
    """Values of one span's rows."""

    profiles: profile.Profiles  # counts by split
    pixels: Mapping[str, Any] = MappingProxyType({})  # `mean`, `variance`, `images` of train, by feature


@dataclass(frozen=True)
class ComparedVersion:
    """A version to compare."""

    manifest: Manifest
    folder: Location  # the version's folder, or where an unpublished one is assembled
    profiles: profile.Profiles = field(default_factory=dict)  # by split; empty if damaged, see `fault`
    fault: str = ""  # the damaged file behind missing profiles, or missing profiles of `spans`
    spans: Mapping[str, SpanProfile] = field(default_factory=dict)
    """Spans compared one by one: new or changed ones; of the live version its last ones, until comparisons tell what is
    usual."""
    _words: dict[str, list[str]] = field(init=False, default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, folder: Location, manifest: Manifest) -> "ComparedVersion":
        """Reads a version; damaged or missing profiles become its fault."""
        try:
            profiles = profile.read_profiles(folder, manifest.files.get(profile.FILE, {}).get("sha256"))
        except DatasetError as error:
            return cls(manifest, folder, fault=str(error))
        return cls(manifest, folder, profiles or {}, "" if profiles else f"{folder / profile.FILE} is missing")

    def words(self, feature: str) -> list[str] | None:
        """Reads a feature's names or words by id; None without a vocabulary. Raises: DatasetError."""
        described = self.manifest.features[feature]
        if "vocabulary" not in described:
            return None
        if feature not in self._words:
            with self._naming_damage():
                self._words[feature] = read_vocabulary(self.folder, read_description(described), feature)
        return self._words[feature]

    def ids(self, feature: str) -> dict[str, int]:
        """Reads the ids of a feature's words, as `ids_of`. Raises: DatasetError."""
        with self._naming_damage():
            return ids_of(self.folder, read_description(self.manifest.features[feature]), feature)

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        try:
            yield
        except DatasetError as error:
            raise DatasetError(f"{self.manifest.version} is damaged: {error}") from None

    def words_digest(self, feature: str) -> tuple[Any, ...] | None:
        """Returns a value equal for equal lists of `words`; None if the manifest lacks their digest."""
        described = self.manifest.features[feature]
        digest = self.manifest.files.get(described.get("vocabulary", ""), {}).get("sha256")
        return None if digest is None else (digest, *(described.get(name) for name in SPECIAL))

    def options(self, feature: str) -> Mapping[str, Any]:
        """Returns the spec's options of a feature; empty for outputs of the user's function."""
        return dict(self.manifest.spec.get("features", {}).get(feature, {}))


def is_edited(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a person changed options between two specs; ignores options added by a later Recordmill."""
    return bool(before) != bool(after) or any(before[name] != after[name] for name in before if name in after)


class IdChanges(NamedTuple):
    """Words with changed ids."""

    gained: list[str]
    lost: list[str]
    moved: list[str]  # words with different ids


def compare_ids(before: Mapping[str, int], after: Mapping[str, int]) -> IdChanges:
    """Compares the ids of words, in id order."""
    return IdChanges(
        [word for word in after if word not in before],
        [word for word in before if word not in after],
        [word for word, id_ in before.items() if after.get(word, id_) != id_],
    )


def ids_of(folder: Location, description: Description, feature: str) -> dict[str, int]:
    """Reads ids by word as in the data, without special entries; empty without a vocabulary. Raises: DatasetError."""
    ids = description.ids
    if ids is None or ids.file is None:
        return {}
    words = read_words(folder, ids.file) if ids.words else read_vocabulary(folder, description, feature)[ids.first :]
    return {word: id_ for id_, word in enumerate(words, ids.first) if word}


def first_few(words: Sequence[str], ids: Ids | None = None) -> str:
    """Formats the first few words in brackets, for a message; empty for no words, or words of texts in `ids`."""
    is_shown = words and (ids is None or ids.are_classes)
    return f" ({', '.join(words[:SHOWN])}{', …' if len(words) > SHOWN else ''})" if is_shown else ""


def id_changes(before: Manifest, old: Location, after: Mapping[str, Description], new: Location) -> Iterator[str]:
    """Yields a line for each feature with new, lost or moved ids; never shows words of texts: values of rows."""
    again = "have another id than before, so the model needs training again"
    for name, description in after.items():
        table = description.ids if name in before.features else None
        if table is None or table.file is None:
            continue
        with suppress(DatasetError):  # a damaged version must not prevent a build
            ids = ids_of(old, read_description(before.features[name]), name)
            new_names, lost, moved = compare_ids(ids, ids_of(new, description, name))
            lines = [f"{len(new_names):,} new{first_few(new_names, table)}"] if ids and new_names else []
            lines += [f"{len(lost):,} without an id now{first_few(lost, table)}"] if lost else []
            lines += [f"{len(moved):,} of {len(ids):,} {again}"] if moved else []
            if lines:
                yield f"{name}: {'; '.join(lines)}"


def names_gone(
    kept: Mapping[str, tuple[str, ...]], label: str | None, statistics: Mapping[str, Any], labels: Mapping[int, int]
) -> Iterator[str]:
    """Yields a line for each feature that keeps ids of names missing from the data, for the label in all splits.

    `labels` counts the label's records by id; empty if the user's function made another label.
    """
    for name, names in kept.items():
        words = statistics.get(name, {}).get("gone", [])
        if name == label and labels:
            words = [word for id_, word in enumerate(names) if not labels.get(id_)]
        if words:
            where = "data" if name == label else "train split"
            yield f"{name}: {len(words):,} not in the {where} any more, their ids are kept{first_few(words)}"
