"""The two versions that are compared, each as its manifest, its profiles, and its folder of vocabularies."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from recordmill.pipeline.compare.ids import ids_of
from recordmill.pipeline.dataset.arrow_tables import read_table
from recordmill.pipeline.dataset.file_names import REPORT, span_file
from recordmill.pipeline.dataset.manifest import DatasetError, Location, Manifest
from recordmill.pipeline.dataset.paths import read_inner
from recordmill.pipeline.dataset.profile import FILE as PROFILE
from recordmill.pipeline.dataset.profile import Profiles, by_split, read_profiles
from recordmill.pipeline.dataset.span_report import MOST_BYTES, read_report
from recordmill.pipeline.dataset.vocabulary import read_vocabulary
from recordmill.transforms.contract.kinds import read_description

PIXELS = "summaries/pixels/"
SUMS = ("images", "pixels", "total", "squares")
"""The columns of a span's sums of pixels, by feature, channel and level."""


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


def with_last_spans(version: ComparedVersion, most: int) -> ComparedVersion:
    """Adds a live version's last spans, at most `most`; none where one is damaged, so that limits alone decide."""
    names = [name for name, span in version.manifest.spans.items() if not span.members][-most:]
    with suppress(DatasetError):
        return replace(version, spans={name: _profile(version.folder, version.manifest, name) for name in names})
    return version


def with_new_spans(version: ComparedVersion, live: Manifest) -> ComparedVersion:
    """Adds the spans whose rows the live version lacks; those that are damaged have no values, and make a fault."""
    spans, faults = dict[str, SpanProfile](), [version.fault] if version.fault else []
    for name in _new_spans(live, version.manifest):
        try:
            spans[name] = _profile(version.folder, version.manifest, name)
        except DatasetError as error:
            spans[name] = SpanProfile({})
            faults.append(str(error))
    return replace(version, spans=spans, fault="; ".join(faults))


def _new_spans(live: Manifest, manifest: Manifest) -> list[str]:
    """Names the spans whose rows the live version lacks; none where it has no span of this version."""
    known = {key for span in live.spans.values() for key in (span.key, *span.members.values())}
    new = [name for name, span in manifest.spans.items() if not known.issuperset(span.members.values() or [span.key])]
    return new if len(new) < len(manifest.spans) else []


def _profile(folder: Location, manifest: Manifest, span: str) -> SpanProfile:
    """Reads the profile of a span. Raises: DatasetError: its report or its sums are broken."""
    path = span_file(span, REPORT)
    try:
        profiles = by_split(filter(None, read_report(read_inner(folder, path, MOST_BYTES))["shards"]))
        return SpanProfile(profiles, _pixels(folder, manifest, span_file(span, PIXELS)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{folder / path} is broken ({error}): build again") from None


def _pixels(folder: Location, manifest: Manifest, sums: str) -> dict[str, dict[str, Any]]:
    """Returns `mean` and `variance` by channel, and the number of `images`, of images whose pixels were summed."""
    totals = dict[str, dict[int, list[int]]]()
    for path in (path for path in manifest.files if path.startswith(sums)):
        for row in read_table(folder, path, read_inner(folder, path, MOST_BYTES)).to_pylist():
            total = totals.setdefault(row["feature"], {}).setdefault(row["channel"], [0, 0, 0, 0])
            total[:] = [old + row[name] for old, name in zip(total, SUMS, strict=True)]
    return {name: _moments([total for _, total in sorted(channels.items())]) for name, channels in totals.items()}


def _moments(channels: list[list[int]]) -> dict[str, Any]:
    counted = [(pixels or 1, total, squares) for _, pixels, total, squares in channels]
    variance = [(squares * count - total**2) / count**2 for count, total, squares in counted]
    return {"mean": [total / count for count, total, _ in counted], "variance": variance, "images": channels[0][0]}
