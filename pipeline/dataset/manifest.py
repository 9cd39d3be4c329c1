"""The manifest `dataset.json` of a version, and `LATEST`, the pointer to the live version. Format 1.

The manifest makes a folder a version: readers open only the files that it lists. Its paths are relative to the folder,
so a copied folder is the same dataset. Names and identifiers have types (`dataset.paths`), checked on reading.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NotRequired, TypedDict, TypeVar, overload

from recordmill.pipeline.dataset import paths
from recordmill.pipeline.dataset.manifest_parts import Pack, PackFile, Written, check_parts
from recordmill.pipeline.dataset.paths import FeatureName, InnerPath, Sha256, SpanName, SplitName, VersionName
from recordmill.pipeline.dataset.paths import Location as Location
from recordmill.pipeline.errors import DatasetError as DatasetError
from recordmill.pipeline.errors import did_you_mean, listed
from recordmill.pipeline.json_values import Count, NewerFormatError, check_format, check_types, parse_json, read_as
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.bounds import PADDED_BYTES, SHARD_RECORDS

FRAME_BYTES = 16  # of a record's header and footer; `tfrecord` loads NumPy
FORMAT, DEEP_FORMAT = 1, 2
"""The latter is of versions with images of more than 8 bits, which readers of format 1 would cut without a word."""
MANIFEST_FILE = "dataset.json"
LATEST_FILE = "LATEST"
VERSIONS_FOLDER = "versions"
MOST_LATEST_BYTES = 4 << 20  # 4 MiB: it names all versions, perhaps ten thousand
MOST_MANIFEST_BYTES = 64 << 20  # 64 MiB: 100,000 shards, and as JSON at most 2 GB of memory
Json = dict[str, Any]
_Read = TypeVar("_Read")
_Folder = TypeVar("_Folder", bound=Location)


def index_bytes(records: int) -> int:
    """Returns the bytes of an index: 8 per record offset, and 8 for the file's size."""
    return 8 * (records + 1)


@dataclass(frozen=True)
class Shard(Written):
    """A TFRecord file of a split, and its index: the records' offsets and the file's size as little-endian uint64."""

    file: InnerPath
    bytes: Count
    records: Count
    sha256: Sha256
    index: InnerPath
    span: SpanName | None = None  # the span of its records (`Manifest.spans`), if the version has spans
    version: VersionName | None = None  # the version with file and index in its folder; None: this one
    root: str | None = None
    """The folder or URL of an adopted file, never written, or below the dataset's; read if `file_names.Allowed`."""
    frames: Count | None = None  # the records of an adopted file: with the index, of any split
    kept: InnerPath | None = None
    """A bit for each record of an adopted file, the lowest first: 1 for those of the split; None: all are."""
    kept_bytes: Count | None = None  # the bytes of these records
    seen: str | None = None  # of an adopted file: its ctime and inode, or the store's tag, when it was adopted
    sample: Sha256 | None = None  # of an adopted file: the digest of some blocks (`file_names.sample`)
    packs: tuple[PackFile, ...] = ()  # the indexes of packed rows, in the order of `Manifest.packs`

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of file, index and pack indexes, by path in the version's folder."""
        packs = {pack.file: pack.bytes for pack in self.packs}
        return {self.file: self.bytes, self.index: index_bytes(self.indexed)} | packs

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of file, index and pack indexes in the version's folder."""
        return tuple(self.sizes)

    @property
    def indexed(self) -> int:
        """The records in the index."""
        return self.records if self.frames is None else self.frames


@dataclass(frozen=True)
class Span(Written):
    """A part of the rows with separate shards, such as one day's; a build with the same key keeps them."""

    key: Sha256  # the digest of everything that determines its records, except the version's transform graph
    rows: Mapping[str, Count]  # rows read, written, rejected and dropped as duplicates
    files: Count  # the number of its input files
    bytes: Count  # the bytes of its input files
    inputs_sha256: Sha256
    members: Mapping[SpanName, Sha256] = field(default_factory=dict)
    """The keys of the spans merged here by `--compact`, by name."""


@dataclass(frozen=True)
class Split(Written):
    """The shards of a split in order, and the records of each label id (None without a label)."""

    shards: tuple[Shard, ...]
    label_counts: tuple[Count, ...] | None = None
    documents: Count | None = None
    """The number of source rows in the records, if several share one (texts packed by Recordmill 0.1)."""
    source_rows: Count | None = None  # the number of source rows, if some are several records: windows of a text

    @property
    def records(self) -> int:
        """The number of records of all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """The bytes of all shards; of an adopted file that splits share, those of the split's records."""
        return sum(shard.bytes if shard.kept_bytes is None else shard.kept_bytes for shard in self.shards)

    @property
    def rows(self) -> int:
        """The number of source rows in all records."""
        counted = self.source_rows if self.documents is None else self.documents
        return self.records if counted is None else counted

    def to_json(self) -> Json:
        """Returns the split as JSON, with its sums."""
        return {"records": self.records, "bytes": self.bytes, **super().to_json()}


@dataclass(frozen=True, repr=False)
class Manifest(Written):
    """A version's description; the first fields, without defaults, are those needed by the reader."""

    format: ClassVar[int] = FORMAT
    name: paths.DatasetName
    version: VersionName
    build_key: Sha256
    label: str | None  # the feature to predict
    features: Mapping[FeatureName, Json]  # the result of each kind's `describe`, in the spec's order
    splits: Mapping[SplitName, Split]
    statistics: Json = field(default_factory=dict)  # the results of the analysis, by feature
    rows: Json = field(default_factory=dict)  # rows of all sources read, written, rejected and dropped as duplicates
    sources: tuple[Json, ...] = ()
    rejects: Json = field(default_factory=dict)
    spec: Json = field(default_factory=dict)
    provenance: Json = field(default_factory=dict)
    sequence: Count = 0  # the version's number in the order of publishing, from 1
    files: Mapping[InnerPath, Json] = field(default_factory=dict)
    """`bytes` and `sha256` of every file except the shards and this one, by path."""
    duplicates: Json = field(default_factory=dict)
    """Rows of equal content, within and across splits (`pipeline.build.duplicates.decisions`)."""
    spans: Mapping[SpanName, Span] = field(default_factory=dict)
    """The spans by name, in the order of their shards; empty for a build without spans."""
    drift: Json = field(default_factory=dict)
    """The distance of the rows from those of a frozen analysis; empty without one."""
    gate: Json = field(default_factory=dict)
    """The gate's figures against the live version (`pipeline.compare`); empty for a first version."""
    adopted: Json = field(default_factory=dict)
    """The folders of adopted files, and `key`, the records' feature with the key; empty for a built version."""
    packs: tuple[Pack, ...] = ()  # the lengths at which records are packed into rows, and their features
    trial: Count = 0  # the approximate number of rows asked for; 0 for all

    def __repr__(self) -> str:
        """Names splits with records, and features with kinds: `<Manifest emoji 2026…: train 80; image image, …>`."""
        splits = ", ".join(f"{name} {split.records:,}" for name, split in self.splits.items())
        marks = {self.label: " (label)"}
        features = [f"{name}: {each.get('kind')}{marks.get(name, '')}" for name, each in self.features.items()]
        return f"<{type(self).__name__} {self.name} {self.version}: {splits}; {listed(features)}>"

    @property
    def digest(self) -> str:
        """The SHA-256, in hex, of all that a reader gets: features, statistics, records in order, vocabularies."""
        named = {each.get(of) for each in self.features.values() for of in ("vocabulary", "model")}
        named |= {shard.kept for shard in self.shards}
        files = {file: each.get("sha256") for file, each in self.files.items() if file in named}
        shards = {name: [shard.sha256 for shard in split.shards] for name, split in self.splits.items()}
        content = [self.name, dict(self.features), self.label, dict(self.statistics), shards, files]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def source_key(self) -> str:
        """The digest of spec, packages and inputs, without parts kept from other versions."""
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

    def content_of(self, shard: Shard) -> str:
        """Returns the text that stands for a shard's records in comparisons: its digest; for an adopted one more."""
        chosen = self.files.get(shard.kept or "", {}).get("sha256", "")
        return shard.sha256 if shard.root is None else f"{shard.sha256} {chosen} {shard.file}"

    def split(self, name: str) -> Split:
        """Returns a split. Raises: DatasetError: the name is unknown."""
        return self._known("split", name, self.splits)

    def feature(self, name: str) -> Json:
        """Returns a feature's description. Raises: DatasetError: the name is unknown."""
        return self._known("feature", name, self.features)

    def _known(self, what: str, name: str, known: Mapping[str, _Read]) -> _Read:
        check_types({what: name}, {what: str})
        if name in known:
            return known[name]
        raise DatasetError(f"unknown {what} '{name}'{did_you_mean(name, known)}; {self.name} has: {listed([*known])}")

    def to_text(self) -> str:
        """Returns `dataset.json`, a deterministic text. Raises: ValueError: a number is NaN or infinite."""
        is_deep = any("pixel" in feature for feature in self.features.values())
        return _to_text({"format": DEEP_FORMAT if is_deep else FORMAT, **self.to_json()})

    @classmethod
    def from_json(cls, manifest: Any) -> "Manifest":
        """Reads a parsed `dataset.json`. Raises: NewerFormatError; DatasetError: a wrong or missing value."""
        check_format(manifest, DEEP_FORMAT)
        read: Manifest = read_as(manifest, cls, "")
        _check_features(read)
        _check_shards(read)
        lengths = [pack.length for pack in read.packs]  # a shard may lack all indexes
        names = {name for pack in read.packs for name in (*pack.features, *pack.padding)}
        wrong = [shard for shard in read.shards if shard.packs and [each.length for each in shard.packs] != lengths]
        if wrong or not all(lengths) or not names <= read.features.keys():
            packs = f"the packs of {listed([*map(str, lengths)])} ids"
            raise DatasetError(f"{packs} do not fit the features and the shards")
        for name, split in read.splits.items():
            written = read_as(manifest["splits"][name].get("records"), Count, f"splits.{name}.records")
            if split.records != written:
                raise DatasetError(f"the shards of '{name}' hold {split.records} records, expected {written}")
        check_parts(vars(read))
        return read


@dataclass(frozen=True)
class Latest(Written):
    """The content of `LATEST`: the live version and the states of versions, replaced as one."""

    version: VersionName
    sequence: Count  # the largest number so far: each publishing and each move of the pointer takes the next
    retired: Mapping[VersionName, paths.Time] = field(default_factory=dict)
    """The time in UTC when each version was last live, by the clock of the process that moved the pointer."""
    pinned: tuple[VersionName, ...] = ()  # versions protected from prunes
    removing: tuple[VersionName, ...] = ()  # versions under removal, which cannot become live
    same: tuple[Sha256, ...] = ()  # other source keys known to produce the live version
    rolled_back: tuple[str, ...] = ()
    """Marks of the inputs and rows of rolled-back versions: builds of them do not go live."""
    tags: Mapping[VersionName, VersionName] = field(default_factory=dict)  # pinned versions by a person's names

    def to_text(self) -> str:
        """Returns the file's text."""
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
    """Returns the folder of a version, which may be missing. Raises: DatasetError: `version` is not a folder's name."""
    paths.check_folder_name("version", version)
    return _location(output) / VERSIONS_FOLDER / version


def which_versions(names: Sequence[str]) -> str:
    """Lists the versions of a dataset for a message."""
    return f"it has {', '.join(names)}" if names else "it has no versions"


def no_folder(output: str | Location) -> DatasetError:
    """Returns the error about a missing dataset."""
    return DatasetError(f"there is no folder '{output}': give a dataset's, the `--output` of its build")


def read_latest(output: str | Location) -> Latest:
    """Reads the pointer to the live version. Raises: DatasetError: the folder or pointer is missing or broken."""
    folder = _location(output)
    if (folder / LATEST_FILE).is_file():
        return _read(folder, LATEST_FILE, MOST_LATEST_BYTES, Latest.from_json)
    if not folder.is_dir():
        raise no_folder(output)
    inside = sorted(file.parent.name for file in folder.glob(f"*/{LATEST_FILE}")) if isinstance(folder, Path) else []
    names = [each.name for each in folder.glob("[!.]*")] if isinstance(folder, Path) else []
    is_foreign = names and {VERSIONS_FOLDER, paths.HISTORY_FILE}.isdisjoint(names)
    foreign = "it holds other files, no dataset: give the `--output` of a build"
    own = foreign if is_foreign else f"run `recordmill build dataset.yaml --output {output}`"
    remedy = f"it holds the datasets {listed(inside)}: name one, {folder / inside[0]}" if inside else own
    raise DatasetError(f"no live version is published in {output}: {remedy}")


def read_manifest(folder: str | Location) -> Manifest:
    """Reads the manifest of a version's folder. Raises: DatasetError: it is missing, broken or too new."""
    if not (_location(folder) / MANIFEST_FILE).is_file():
        raise DatasetError(f"{folder} is not a published version: {MANIFEST_FILE} is missing")
    return _read(_location(folder), MANIFEST_FILE, MOST_MANIFEST_BYTES, Manifest.from_json)


def _location(path: str | Location) -> Location:
    return Path(path) if isinstance(path, str) else path


def _read(folder: Location, name: str, most: int, from_json: Callable[[Any], _Read]) -> _Read:
    content = paths.read_inner(folder, name, most)
    try:
        return from_json(parse_json(content))
    except NewerFormatError as error:
        raise NewerFormatError(f"{folder / name} cannot be read: {error}") from None
    except DatasetError as error:
        raise DatasetError(f"{folder / name} is broken ({error}): restore it from a copy, or build again") from error


def _to_text(value: Json) -> str:
    # Keys keep the spec's order. ASCII, because a file's name may hold half a surrogate pair, invalid in UTF-8.
    return json.dumps(value, indent=2, allow_nan=False, default=lambda part: part.to_json()) + "\n"


def _check_features(manifest: Manifest) -> None:
    if manifest.label is not None and manifest.label not in manifest.features:
        raise DatasetError(f"the label '{manifest.label}' is not one of the features {listed(manifest.features)}")
    for name, description in manifest.features.items():
        has_vocabulary = "vocabulary" in description
        read_as(description, _WithVocabulary if has_vocabulary else _Described, f"features.{name}")
        stated, shape = (description.get(each) for each in ("length", "max_length", "packed")), description.get("shape")
        sides = [description.get("max_texts"), *(shape[:64] if isinstance(shape, list) else ())]
        longest = max([1, *(each for each in stated if type(each) is int)])
        item = 1 if description.get("dtype") == "uint8" else 8
        padded = longest * item * math.prod(side for side in sides if type(side) is int)
        if padded > PADDED_BYTES.most:
            raise DatasetError(f"features.{name}: {PADDED_BYTES.beyond(padded)}")


class _Described(TypedDict):
    kind: str
    model: NotRequired[InnerPath | None]


class _WithVocabulary(_Described):
    vocabulary: InnerPath
    vocabulary_size: Count


def _check_shards(manifest: Manifest) -> None:
    """Refuses a shard's file with two roles, and an adopted one with fewer records than its split."""
    for shard in manifest.shards:
        if shard.indexed > SHARD_RECORDS.most or (shard.root and shard.indexed > shard.bytes // FRAME_BYTES):
            said = f"{shard.indexed:,} records in {shard.bytes:,} bytes"
            raise DatasetError(f"the shard file {cut(repr(shard.file))} cannot have {said}")
        if shard.root and (shard.frames is None or shard.frames < shard.records):
            raise DatasetError(f"the adopted file {cut(repr(shard.file))} has no count of records, or too small a one")
    files = [(each.version, path) for each in manifest.shards if not each.root for path in each.paths]
    if any(bool(shard.root) != bool(manifest.adopted) for shard in manifest.shards):
        raise DatasetError("some files are adopted, and some are not")
    beside = {path for shard in manifest.shards for path in shard.paths[1:]}
    others = {MANIFEST_FILE, *manifest.files.keys() - beside}
    known = set[tuple[str | None, str]]((None, path.casefold()) for path in others)
    for version, path in files:
        if (version, path.casefold()) in known:
            raise DatasetError(f"the shard file {cut(repr(path))} is also another file of the version")
        known.add((version, path.casefold()))
