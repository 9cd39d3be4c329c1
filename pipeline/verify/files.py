"""Checks the files of a version: their bytes and digests, its graphs, and their agreement with each other.

The findings are problems with their places, and counts of checks; as text or JSON.

A digest only proves that a file is unchanged. A SavedModel is a program: its digest shows that it is the published one,
and a list of allowed operations limits even a malicious one. Both checks read the bytes, before TensorFlow loads them.

>>> findings = Findings()
>>> findings.add("emoji-train.tfrecord-00000-of-00004", "the data has a wrong checksum", record=7, offset=1_234)
>>> print(findings.problems[0])
emoji-train.tfrecord-00000-of-00004, record 7 at byte 1,234: the data has a wrong checksum
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recordmill.dataset import open_dataset
from recordmill.pipeline.dataset.catalogues import DATASET_INFO
from recordmill.pipeline.dataset.file_names import shown_paths
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest, Shard
from recordmill.pipeline.dataset.paths import ADOPT, ADVICE
from recordmill.pipeline.graphs import MODEL_FILE, UnsafeGraphError, check_model
from recordmill.pipeline.json_values import parse_json
from recordmill.pipeline.reader.remote import RemotePath, VersionFiles
from recordmill.pipeline.safe_text import printable
from recordmill.pipeline.versions.base import FORGOTTEN, LEARNED_OF
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import stored_features

PATTERN = "TensorFlow opens no model below a folder with [ in its name: rename it, or link it from elsewhere"
MOST = 20  # problems listed per file; the rest are counted
_COUNTED = {each: each for each in ("files", "shards", "records")}
_COUNTED |= {"operations": "operations of graphs", "rows": "raw rows served and read"}
"""The names of the counts, in the report's order."""
GRAPHS = ("transform_fn", "serving")
TFDS_FEATURES = "features.json"


@dataclass(frozen=True)
class Problem:
    """A difference between a version and its manifest: in a file of the version, at a record (from 0), at a byte."""

    file: str
    message: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        """One line, with a hostile file name escaped."""
        record = "" if self.record is None else f", record {self.record}"
        byte = "" if self.offset is None else f"{'' if record else ','} at byte {self.offset:,}"
        return f"{printable(self.file)}{record}{byte}: {self.message}"


@dataclass
class Findings:
    """The problems of some files, and counts of checks."""

    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """The number of problems of each file, including unlisted ones."""
    checked: Counter[str] = field(default_factory=Counter)
    """The number of checked `files`, `bytes`, `shards`, `records`, `operations` and `rows`."""
    unchecked: list[str] = field(default_factory=list)  # the skipped checks, with reasons

    def add(self, file: str, message: str, record: int | None = None, offset: int | None = None) -> None:
        """Adds a problem; beyond 20 of a file only counts it."""
        self.counts[file] += 1
        if self.counts[file] <= MOST:
            self.problems.append(Problem(file, message, record, offset))

    def merge(self, *others: "Findings") -> None:
        """Adds the findings of other checks."""
        for other in others:
            self.problems += other.problems
            self.counts.update(other.counts)
            self.checked.update(other.checked)
            self.unchecked += other.unchecked

    @property
    def unnamed(self) -> dict[str, int]:
        """The number of unlisted problems, by file."""
        named = Counter(problem.file for problem in self.problems)
        return {file: count - named[file] for file, count in self.counts.items() if count > named[file]}


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification."""

    manifest: Manifest
    folder: str
    findings: Findings
    seconds: float

    @property
    def is_whole(self) -> bool:
        """Whether the version has no problems."""
        return not self.findings.counts

    def __str__(self) -> str:
        """Returns the lines that `recordmill verify` prints."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Formats the report for people: problems, counts, skipped checks, and last the verdict."""
        findings = self.findings
        yield from map(str, findings.problems)
        yield from (f"{printable(file)}: and {count:,} more" for file, count in findings.unnamed.items())
        counts = ((findings.checked[key], name) for key, name in _COUNTED.items())
        checked = ", ".join(f"{count:,} {name}" for count, name in counts if count)
        megabytes, seconds = findings.checked["bytes"] / 1e6, max(self.seconds, 1e-9)
        yield f"checked {checked}; {megabytes:,.1f} MB in {self.seconds:.1f} s, {megabytes / seconds:,.0f} MB/s"
        yield from (f"not checked: {check}" for check in findings.unchecked)
        problems, files = findings.counts.total(), len(findings.counts)
        verdict = f"{problems:,} problem{'s' * (problems > 1)} in {files:,} file{'s' * (files > 1)}"
        verdict += f": {ADOPT}" if self.manifest.adopted else ""
        if self.is_whole:
            verdict = "matches its manifest"
        yield f"digest {self.manifest.digest}"
        yield printable(f"{self.manifest.name} {self.manifest.version}: {verdict}")

    def to_json(self) -> dict[str, Any]:
        """Formats the report for programs."""
        findings, problems = self.findings, [asdict(problem) for problem in self.findings.problems]
        return {
            "name": self.manifest.name,
            "version": self.manifest.version,
            "digest": self.manifest.digest,
            "folder": self.folder,
            "is_whole": self.is_whole,
            "problems": [{name: each[name] for name in each if each[name] is not None} for each in problems],
            "unnamed": findings.unnamed,
            "checked": dict(sorted(findings.checked.items())),
            "not_checked": findings.unchecked,
            "seconds": round(self.seconds, 3),
            "megabytes_per_second": round(findings.checked["bytes"] / 1e6 / max(self.seconds, 1e-9), 1),
        }


def shown(key: bytes) -> str:
    """Quotes the first 80 bytes of a key for a message.

    >>> shown(b"cats/1.jpg")
    "'cats/1.jpg'"
    """
    return f"'{printable(key[:80].decode('utf-8', 'backslashreplace'))}{'…' if len(key) > 80 else ''}'"


@contextmanager
def adding_errors(findings: Findings, path: str) -> Iterator[None]:
    """Turns errors of reading a file, or of its content, into its problem."""
    try:
        yield
    except DatasetError as error:
        findings.add(path, str(error))
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # not JSON, or of another form
        findings.add(path, f"the content is invalid ({type(error).__name__}: {error})")


def check_file(files: VersionFiles, path: str, bytes_: int, sha256: str, name: str = "") -> Findings:
    """Reads a file and compares its size and digest; findings call it by its path, or by `name`."""
    findings, name = Findings(), name or path
    with adding_errors(findings, name), files.open(path) as (file, size):
        if size != bytes_:
            findings.add(name, f"the file holds {size:,} bytes, expected {bytes_:,}")
        else:
            check_digest(findings, name, hashlib.file_digest(file, "sha256").hexdigest(), sha256)
        findings.checked.update(files=1, bytes=size)
    return findings


def check_shard_file(files: VersionFiles, shard: Shard) -> Findings:
    """Reads a shard and compares its size and digest."""
    findings, name = Findings(), shown_paths(shard)[0]
    with adding_errors(findings, name):
        (folder, path), *_ = files.located(shard)
        return check_file(folder, path, shard.bytes, shard.sha256, name)
    return findings


def check_digest(findings: Findings, path: str, digest: str, expected: str) -> None:
    """Compares two digests in hex."""
    if digest != expected:
        findings.add(path, f"the SHA-256 is {digest}, expected {expected}")


def check_graph(files: VersionFiles, manifest: Manifest, graph: str) -> Findings:
    """Checks the files and the operations of a graph, `transform_fn` or `serving`."""
    findings, folder = Findings(), f"{graph}/"
    listed = {path: entry for path, entry in manifest.files.items() if path.startswith(folder)}
    findings.merge(*(check_file(files, path, entry["bytes"], entry["sha256"]) for path, entry in listed.items()))
    for path in files.listing():
        if path.startswith(f"{folder}saved_model.") and path != folder + MODEL_FILE:
            findings.add(path, "TensorFlow might load it instead")
        elif path.startswith(folder) and path not in listed:
            findings.add(path, "the manifest does not list this file")
    findings.merge(check_operations(files, graph))
    return findings


def check_operations(files: VersionFiles, graph: str) -> Findings:
    """Checks a graph's operations, and that its tables read only its own files."""
    findings, path = Findings(), f"{graph}/{MODEL_FILE}"
    with adding_errors(findings, path):
        checked = check_model(files.read(path))
        for problem in checked.problems:
            findings.add(path, problem)
        if checked.operations:
            findings.checked.update(operations=checked.operations)
    return findings


def serving_model(path: str | Path, version: str | None = None) -> str:
    """Checks a dataset's serving model, and returns its folder for `tf.saved_model.load`.

    Args:
        path: the dataset's folder, or a version's, on this machine.
        version: a version's name; by default the live one.

    Raises:
        UnsafeGraphError: it differs from the manifest, or holds operations not allowed in a published graph.
        DatasetError: the version does not exist, or is at a URL.
    """
    dataset = open_dataset(path, version)
    if dataset.manifest.adopted:
        raise DatasetError(f"{path} names adopted files, which have no serving model: only a build makes one")
    if isinstance(dataset.folder, RemotePath):
        raise DatasetError(f"{path} is a URL: copy the version to this machine (it could change after the check)")
    findings = check_graph(VersionFiles(dataset.folder), dataset.manifest, "serving")
    if findings.problems:
        more = findings.counts.total() - 1
        others = f", and {more} more problem{'s' * (more > 1)}" if more else ""
        raise UnsafeGraphError(f"the graph is not loaded: {findings.problems[0]}{others}: {ADVICE}")
    if "[" in str(dataset.folder):
        raise DatasetError(f"{dataset.folder}: {PATTERN}")
    return str(dataset.folder / "serving")


def check_agreement(files: VersionFiles, manifest: Manifest) -> Findings:
    """Compares values written in several places."""
    findings = Findings()
    with adding_errors(findings, MANIFEST_FILE):
        for message in _counts_agree(manifest):
            findings.add(MANIFEST_FILE, message)
    if DATASET_INFO in manifest.files:
        with adding_errors(findings, DATASET_INFO):
            listed = parse_json(files.read(DATASET_INFO))["splits"]
            splits = {split["name"]: (split["shardLengths"], split["numBytes"]) for split in listed}
            for name, split in manifest.splits.items():
                expected = ([str(shard.records) for shard in split.shards], str(split.bytes))
                if split.records and splits.get(name) != expected:
                    differ = f"the shards or bytes of the split '{name}' differ from {MANIFEST_FILE}"
                    findings.add(DATASET_INFO, differ)
    if TFDS_FEATURES in manifest.files:
        with adding_errors(findings, TFDS_FEATURES):
            names = set(parse_json(files.read(TFDS_FEATURES))["featuresDict"]["features"])
            if odd := names ^ stored_features(read_descriptions(manifest.features), with_key=True).keys():
                shown = ", ".join(map(repr, sorted(odd)[:5]))
                findings.add(TFDS_FEATURES, f"the features differ from {MANIFEST_FILE}: {shown}")
    for path in sorted({feature["vocabulary"] for feature in manifest.features.values() if "vocabulary" in feature}):
        with adding_errors(findings, path):
            words = files.read(path).count(b"\n")
            for name, feature in manifest.features.items():
                first, size = feature.get("first_id", 0), feature.get("vocabulary_size")
                if feature.get("vocabulary") == path and words + first != size:
                    ids = f"'{name}' has {size:,} ids, including {first:,} without words"
                    findings.add(path, f"{words:,} words, but {ids}")
    for file in manifest.rejects.get("files", []):
        with adding_errors(findings, file["file"]):
            lines, expected = files.read(file["file"]).count(b"\n"), file.get("records", 0)
            if lines != expected:
                findings.add(file["file"], f"{lines:,} rejects, expected {expected:,}")
    return findings


def _counts_agree(manifest: Manifest) -> Iterator[str]:
    """Read = written + rejected + duplicates + forgotten, by source and in total; all written rows are in records."""
    for name, counts in [("the rows", manifest.rows), *((f"source {s.get('path')}", s) for s in manifest.sources)]:
        accounted = sum(counts.get(fate, 0) for fate in ("written", "rejected", "duplicates", "forgotten"))
        if counts and counts.get("read") != accounted:
            yield f"{name}: {counts.get('read')} were read, {accounted} are written, rejected, duplicates or forgotten"
    stored = sum(split.rows for split in manifest.splits.values())
    if manifest.rows and manifest.rows.get("written") != stored:
        yield f"{manifest.rows.get('written')} rows were written, the splits hold {stored}"
    for fate, count in manifest.rows.items():
        by_source = sum(source.get(fate, 0) for source in manifest.sources)
        # `recordmill versions forget` cannot tell from which of several sources the removed rows came.
        is_known = len(manifest.sources) == 1 or LEARNED_OF not in manifest.provenance.get(FORGOTTEN, {})
        if manifest.sources and is_known and count != by_source:
            yield f"the sources have {by_source} rows {fate}, the manifest says {count}"
    rejects, rejected = manifest.rejects, manifest.rows.get("rejected", 0)
    by_reason = sum(rejects.get("by_reason", {}).values())
    in_files = sum(file.get("records", 0) for file in rejects.get("files", []))
    for place, count in (("by reason", by_reason), ("in files", in_files)):
        if manifest.rows and count != rejected:
            yield f"{rejected} rows were rejected, but the manifest counts {count} {place}"
    one_each = manifest.label is not None and manifest.features[manifest.label]["kind"] == "category"
    for name, split in manifest.splits.items():
        if one_each and split.label_counts and sum(split.label_counts) != split.records:
            yield f"the split '{name}' has {sum(split.label_counts)} labels and {split.records} records"
