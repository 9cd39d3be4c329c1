"""The two versions that are compared, each as its manifest, its profiles, and its folder of vocabularies."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from recordmill.pipeline.compare.ids import ids_of
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest
from recordmill.pipeline.dataset.profile import FILE as PROFILE
from recordmill.pipeline.dataset.profile import Profiles, read_profiles
from recordmill.pipeline.dataset.version import read_vocabulary
from recordmill.transforms.contract.kinds import read_description

SPECIAL = ("vocabulary_size", "first_id", "unknown_id", "oov_buckets", "begin_id", "end_id", "padding_id", "shown")
"""The parts of a description that decide the entries of a vocabulary, besides its file."""


class SpanProfile(NamedTuple):
    """The values of one span's rows."""

    profiles: Profiles
    """Their counts, by split."""
    pixels: Mapping[str, Any] = MappingProxyType({})
    """`mean`, `variance` and `images` of the sample of its train split, by image feature."""


@dataclass(frozen=True)
class ComparedVersion:
    """A version as it is compared with another one."""

    manifest: Manifest
    folder: Location
    """Its folder; of a version that is not published yet the one where it is assembled."""
    profiles: Profiles = field(default_factory=dict)
    """The profile of each split; empty where `fault` says why."""
    fault: str = ""
    """The reason why there are no profiles, or none of some `spans`: a damaged file."""
    spans: Mapping[str, SpanProfile] = field(default_factory=dict)
    """Its spans that are compared on their own: those that the other version lacks or has with other rows; of the live
    version the last ones, where no earlier comparison says what is usual."""
    _words: dict[str, list[str]] = field(init=False, default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, folder: Location, manifest: Manifest) -> "ComparedVersion":
        """Reads a version; one whose file of profiles is damaged or missing has a fault."""
        try:
            profiles = read_profiles(folder, manifest.files.get(PROFILE, {}).get("sha256"))
        except DatasetError as error:
            return cls(manifest, folder, fault=str(error))
        return cls(manifest, folder, profiles or {}, "" if profiles else f"{folder / PROFILE} is missing")

    def words(self, feature: str) -> list[str] | None:
        """Reads a feature's names or words by id; None where it has no vocabulary. Raises: DatasetError."""
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
        """Returns a value that is equal for equal lists of `words`; None where the manifest has no digest of them."""
        described = self.manifest.features[feature]
        digest = self.manifest.files.get(described.get("vocabulary", ""), {}).get("sha256")
        return None if digest is None else (digest, *(described.get(name) for name in SPECIAL))

    def options(self, feature: str) -> Mapping[str, Any]:
        """Returns the spec's options of a feature; none for one that a function of the user's stores."""
        options: Mapping[str, Any] = self.manifest.spec.get("features", {}).get(feature, {})
        return options


def is_edited(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a person changed options from one spec to another; options of a later Recordmill do not count."""
    if bool(before) != bool(after):
        return True
    return any(before[name] != after[name] for name in before if name in after)
