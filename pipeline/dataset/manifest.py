"""The manifest: `dataset.json` of a version, and `LATEST`, the pointer to the version that is live. Format 1.

A version is its manifest: readers open the files that it lists and no other; a folder without one is no version.
All paths in it are relative to the version's folder, so that a copied folder is the same dataset. Each text that names
or identifies something has a form, which its type declares (`dataset.paths`), and which is checked when it is read.

>>> manifest = read_manifest(version_folder("out/emoji", read_latest("out/emoji").version))  # doctest: +SKIP
>>> manifest.splits["train"].records  # doctest: +SKIP
8000
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, NotRequired, TypedDict, TypeVar, overload

from recordmill.pipeline.dataset.manifest_parts import check_parts
from recordmill.pipeline.dataset.paths import (
    DatasetName,
    FeatureName,
    InnerPath,
    Sha256,
    SpanName,
    SplitName,
    Time,
    VersionName,
    check_folder_name,
    read_inner,
)
from recordmill.pipeline.dataset.paths import Location as Location
from recordmill.pipeline.errors import DatasetError as DatasetError
from recordmill.pipeline.errors import did_you_mean, listed
from recordmill.pipeline.json_values import UNKNOWN_FIELDS, Count, NewerFormatError, check_format, parse_json, read_as
from recordmill.pipeline.safe_text import cut

FORMAT = 1
MANIFEST_FILE = "dataset.json"
LATEST_FILE = "LATEST"
VERSIONS_FOLDER = "versions"
MOST_LATEST_BYTES = 4 << 20  # 4 MiB: it names the versions, of which a folder may keep some ten thousand
MOST_MANIFEST_BYTES = 64 << 20  # 64 MiB: of 100,000 shards, and as JSON at most 2 GB of memory
WRITTEN_EMPTY = "label_counts statistics rows sources rejects spec provenance sequence files duplicates".split()
"""Fields with a default that stand in every manifest, because the first Recordmills of format 1 miss no field."""

Json = dict[str, Any]
_Read = TypeVar("_Read")

_Folder = TypeVar("_Folder", bound=Location)


@dataclass(frozen=True)
class Written:
    """A part of what a version publishes. Its fields with a default may be absent, so that a later one can be added."""

    unknown_fields: Json = field(default_factory=dict, kw_only=True, compare=False, repr=False)
    """Fields that a newer Recordmill added, as they were read; they are written back."""

    def to_json(self) -> Json:
        """Returns the fields as JSON, without those that have their default."""
        written = {}
        for each in (each for each in fields(self) if each.name != UNKNOWN_FIELDS):
            default = each.default if each.default_factory is MISSING else each.default_factory()
            if (value := getattr(self, each.name)) != default or each.name in WRITTEN_EMPTY:
                written[each.name] = value
        return written | self.unknown_fields


@dataclass(frozen=True)
class Shard(Written):
    """One TFRecord file of a split, and its index: little-endian uint64, each record's offset and the file's size."""

    file: InnerPath
    bytes: Count
    records: Count
    sha256: Sha256
    index: InnerPath
    span: SpanName | None = None
    """The span of its records (`Manifest.spans`); None where the version has none."""
    version: VersionName | None = None
    """The version whose folder holds file and index; None for this one."""


@dataclass(frozen=True)
class Span(Written):
    """A part of the rows with shards of its own, such as those of one day; a build that finds its key takes it over."""

    key: Sha256
    """The digest of everything that decides its records, except the transform graph, which is the version's."""
    rows: Mapping[str, Count]
    """Rows read, written, rejected and left out as duplicates."""
    files: Count
    """The number of its input files."""
    bytes: Count
    """Their size in bytes."""
    inputs_sha256: Sha256
    members: Mapping[SpanName, Sha256] = field(default_factory=dict)
    """The keys of the spans that `--compact` put together here, by name; empty for any other."""


@dataclass(frozen=True)
class Split(Written):
    """The shards of a split in the order of its records, and how often each label id occurs (None without a label)."""

    shards: tuple[Shard, ...]
    label_counts: tuple[Count, ...] | None = None
    documents: Count | None = None
    """The rows of the source that the records hold, where several share one (a text's `pack`)."""

    @property
    def records(self) -> int:
        """The number of records of all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The bytes of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def to_json(self) -> Json:
        """Returns the split as JSON, with its sums."""
        return {"records": self.records, "bytes": self.bytes, **super().to_json()}


@dataclass(frozen=True)
class Manifest(Written):
    """A version's description; the fields that the reader needs stand first, with no default."""

    format: ClassVar[int] = FORMAT
    name: DatasetName
    version: VersionName
    build_key: Sha256
    label: str | None
    """The feature that is the target of training."""
    features: Mapping[FeatureName, Json]
    """The descriptions that `describe` of each feature's kind gives, in the order of the spec."""
    splits: Mapping[SplitName, Split]
    statistics: Json = field(default_factory=dict)
    """The analysis' results, by feature."""
    rows: Json = field(default_factory=dict)
    """Rows read, written, rejected and left out as duplicates, of all sources."""
    sources: tuple[Json, ...] = ()
    rejects: Json = field(default_factory=dict)
    spec: Json = field(default_factory=dict)
    provenance: Json = field(default_factory=dict)
    sequence: Count = 0
    """The number of the version in the order of publishing, from 1."""
    files: Mapping[InnerPath, Json] = field(default_factory=dict)
    """`bytes` and `sha256` of every file but the shards and this one, by path."""
    duplicates: Json = field(default_factory=dict)
    """Rows of one content, within splits and across (`pipeline.build.duplicates.counts`)."""
    spans: Mapping[SpanName, Span] = field(default_factory=dict)
    """The parts that rows belong to, by name, in the order of their shards; empty where the build has no spans."""
    drift: Json = field(default_factory=dict)
    """The distance of the rows from those that a frozen analysis was learned from; empty without one."""
    gate: Json = field(default_factory=dict)
    """The gate's figures, against the version that was live (`pipeline.compare`); empty for a first version."""
    trial: Count = 0
    """About how many rows a trial version was to hold, which is never live; 0 for a version of all rows."""

    @property
    def source_key(self) -> str:
        """The digest of the spec, the packages and the inputs, without what the build took over from other versions."""
        return str(self.provenance.get("source_key", self.build_key))

    @property
    def shards(self) -> list[Shard]:
        """The shards of all splits."""
        return [shard for split in self.splits.values() for shard in split.shards]

    @property
    def records(self) -> int:
        """The records of all splits."""
        return sum(split.records for split in self.splits.values())

    @property
    def bytes(self) -> int:
        """The bytes of all shards."""
        return sum(split.bytes for split in self.splits.values())

    def split(self, name: str) -> Split:
        """Returns a split by its name. Raises: DatasetError for an unknown name."""
        if name not in self.splits:
            raise self._unknown("split", name, self.splits)
        return self.splits[name]

    def feature(self, name: str) -> Json:
        """Returns a feature's description by its name. Raises: DatasetError for an unknown name."""
        if name not in self.features:
            raise self._unknown("feature", name, self.features)
        return self.features[name]

    def _unknown(self, what: str, name: str, known: Iterable[str]) -> DatasetError:
        near = did_you_mean(name, known)
        return DatasetError(f"{self.name} has no {what} '{name}'{near}; there are: {listed([*known])}")

    def to_text(self) -> str:
        """Returns `dataset.json`: the same text for the same manifest, ending in a newline.

        Raises:
            ValueError: a number is NaN or infinite, which JSON cannot hold.
        """
        return _to_text({"format": FORMAT, **self.to_json()})

    @classmethod
    def from_json(cls, manifest: Any) -> "Manifest":
        """Reads a parsed `dataset.json`.

        Raises:
            NewerFormatError: the format is newer. DatasetError: something is missing, or of a wrong type.
        """
        check_format(manifest, FORMAT)
        read: Manifest = read_as(manifest, cls, "")
        read_as(read.files, dict[str, _FileEntry], "files")
        _check_features(read)
        _check_shards(read)
        _check_records(read, manifest["splits"])
        check_parts(vars(read))
        return read


@dataclass(frozen=True)
class Latest(Written):
    """The content of `LATEST`: the live version, and what else is known of versions. It is replaced as one."""

    version: VersionName
    sequence: Count
    """The largest number that was given: each publishing and each move of the pointer takes the next."""
    retired: Mapping[VersionName, Time] = field(default_factory=dict)
    """The time at which each version stopped being live, in UTC, by the clock of the process that moved the pointer."""
    pinned: tuple[VersionName, ...] = ()
    """Versions that are not pruned."""
    removing: tuple[VersionName, ...] = ()
    """Versions that are being deleted: nobody may make them live any more."""
    same: tuple[Sha256, ...] = ()
    """Source keys, beside its own, whose inputs are known to come to the live version."""
    rolled_back: tuple[str, ...] = ()
    """Marks of the inputs and rows of versions that a person rolled back: no build makes such a version live."""

    def to_text(self) -> str:
        """Returns the pointer's text."""
        return _to_text(self.to_json())

    @classmethod
    def from_json(cls, latest: Any) -> "Latest":
        """Reads a parsed `LATEST`. Raises: DatasetError."""
        check_format(latest, FORMAT)
        read: Latest = read_as(latest, cls, "")
        return read


@overload
def version_folder(output: str, version: str) -> Path: ...
@overload
def version_folder(output: _Folder, version: str) -> _Folder: ...
def version_folder(output: str | Location, version: str) -> Location:
    """Returns the folder of a version, whether it is there or not.

    Raises:
        DatasetError: `version` is no name of a folder.
    """
    check_folder_name("version", version)
    return _location(output) / VERSIONS_FOLDER / version


def which_versions(names: Sequence[str]) -> str:
    """Names the versions of a dataset for a message: those that somebody may have meant."""
    return f"there are {', '.join(names)}" if names else "no version is there"


def no_folder(output: str | Location) -> DatasetError:
    """Returns the error about a dataset that is not there."""
    return DatasetError(f"there is no folder '{output}': give a dataset's, the `--output` of its build")


def read_latest(output: str | Location) -> Latest:
    """Reads which version of a dataset is live.

    Raises:
        DatasetError: the folder is not there, nothing has been published in it, or the pointer is broken.
    """
    path = _location(output) / LATEST_FILE
    if not path.is_file():
        if not _location(output).is_dir():
            raise no_folder(output)
        raise DatasetError(
            f"nothing has been published in {output} yet: run `recordmill build dataset.yaml --output {output}`"
        )
    return _read(_location(output), LATEST_FILE, MOST_LATEST_BYTES, Latest.from_json)


def read_manifest(folder: str | Location) -> Manifest:
    """Reads the manifest of a version's folder.

    Raises:
        DatasetError: it is not there, it is broken, or a newer Recordmill wrote it.
    """
    path = _location(folder) / MANIFEST_FILE
    if not path.is_file():
        raise DatasetError(f"{folder} is no published version: it holds no {MANIFEST_FILE}")
    return _read(_location(folder), MANIFEST_FILE, MOST_MANIFEST_BYTES, Manifest.from_json)


def _location(path: str | Location) -> Location:
    return Path(path) if isinstance(path, str) else path


def _read(folder: Location, name: str, most: int, from_json: Callable[[Any], _Read]) -> _Read:
    path = folder / name
    content = read_inner(folder, name, most)
    try:
        return from_json(parse_json(content))
    except NewerFormatError as error:
        raise NewerFormatError(f"{path} cannot be read: {error}") from None
    except DatasetError as error:
        raise DatasetError(f"{path} is broken ({error}): restore it from a copy, or build again") from error


def _to_text(value: Json) -> str:
    # Keys keep their order, which is the spec's and is read by people. ASCII, because a name from a file system may
    # hold half a surrogate pair, which UTF-8 cannot.
    return json.dumps(value, indent=2, allow_nan=False, default=lambda part: part.to_json()) + "\n"


def _check_features(manifest: Manifest) -> None:
    if manifest.label is not None and manifest.label not in manifest.features:
        raise DatasetError(f"there is no feature for the label '{manifest.label}' among {listed(manifest.features)}")
    for name, description in manifest.features.items():
        has_vocabulary = "vocabulary" in description
        read_as(description, _WithVocabulary if has_vocabulary else _Described, f"features.{name}")


class _FileEntry(TypedDict):
    bytes: Count
    sha256: Sha256


class _Described(TypedDict):
    kind: str
    model: NotRequired[InnerPath | None]


class _WithVocabulary(_Described):
    vocabulary: InnerPath
    vocabulary_size: Count


def _check_shards(manifest: Manifest) -> None:
    """Refuses files of shards that are one file, or another file of the version."""
    files = [(shard.version, path) for shard in manifest.shards for path in (shard.file, shard.index)]
    others = {MANIFEST_FILE, *manifest.files.keys() - {shard.index for shard in manifest.shards}}
    known = set[tuple[str | None, str]]((None, path.casefold()) for path in others)
    for version, path in files:
        if (version, path.casefold()) in known:
            raise DatasetError(f"the file {cut(repr(path))} of a shard is also another file")
        known.add((version, path.casefold()))


def _check_records(manifest: Manifest, splits: Json) -> None:
    for name, split in manifest.splits.items():
        written = read_as(splits[name].get("records"), Count, f"splits.{name}.records")
        if split.records != written:
            raise DatasetError(f"the shards of '{name}' hold {split.records} records, not {written}")
