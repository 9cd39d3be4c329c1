"""The two versions that the gate compares, each as its manifest, its profile, and its folder of vocabularies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest
from recordmill.pipeline.dataset.profile import FILE as PROFILE
from recordmill.pipeline.dataset.profile import Profiles, read_profiles
from recordmill.pipeline.dataset.vocabulary import read_vocabulary
from recordmill.transforms.contract.kinds import read_description

SPECIAL = ("vocabulary_size", "first_id", "unknown_id", "oov_buckets", "begin_id", "end_id", "padding_id", "shown")
"""The parts of a description that decide the entries of a vocabulary beside its file."""


class SpanProfile(NamedTuple):
    """The values of one span's rows."""

    profiles: Profiles
    """Their counts, by split."""
    pixels: Mapping[str, Any] = MappingProxyType({})
    """`mean`, `variance` and `images` of the sample of its train split, by image feature."""


@dataclass(frozen=True)
class GatedVersion:
    """A version as the gate sees it."""

    manifest: Manifest
    folder: Location
    """Its folder; of a version that is not published yet the one where it is assembled."""
    profiles: Profiles | None
    """None where an earlier Recordmill built it."""
    fault: str = ""
    """The reason why there are no profiles, or none of some `spans`, where a file is damaged."""
    spans: Mapping[str, "SpanProfile"] = field(default_factory=dict)
    """Its spans that are compared on their own: those that the other version lacks or has with other rows; of the live
    version the last ones, where no earlier comparison says what is usual."""
    _words: dict[str, list[str]] = field(init=False, default_factory=dict, repr=False, compare=False)

    @classmethod
    def read(cls, folder: Location, manifest: Manifest) -> "GatedVersion":
        """Reads a version; one whose file of profiles is damaged has a fault."""
        try:
            return cls(manifest, folder, read_profiles(folder, manifest.files.get(PROFILE, {}).get("sha256")))
        except DatasetError as error:
            return cls(manifest, folder, None, str(error))

    def words(self, feature: str) -> list[str] | None:
        """Reads a feature's names or words by id; None where it has no vocabulary. Raises: DatasetError."""
        described = self.manifest.features[feature]
        if "vocabulary" not in described:
            return None
        if feature not in self._words:
            try:
                self._words[feature] = read_vocabulary(self.folder, read_description(described), feature)
            except DatasetError as error:
                raise DatasetError(f"{self.manifest.version} is damaged: {error}") from None
        return self._words[feature]

    def words_digest(self, feature: str) -> tuple[Any, ...] | None:
        """Gives what two equal lists of `words` have in common; None where the manifest does not say it."""
        described = self.manifest.features[feature]
        digest = self.manifest.files.get(described.get("vocabulary", ""), {}).get("sha256")
        return None if digest is None else (digest, *(described.get(name) for name in SPECIAL))

    def options(self, feature: str) -> Mapping[str, Any]:
        """Gives the spec's options of a feature; none for one that a function of the user's stores."""
        options: Mapping[str, Any] = self.manifest.spec.get("features", {}).get(feature, {})
        return options


def is_edited(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a person changed options from one spec to another; options of a later Recordmill do not count."""
    if bool(before) != bool(after):
        return True
    return any(before[name] != after[name] for name in before if name in after)
