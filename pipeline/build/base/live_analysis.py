"""The parts of the live version that a build continues: ids of classes, a transform graph, shards of spans.

`analysis: frozen` keeps the graph from version to version: ids and normalized numbers keep their meaning for models in
service. It is relearned if the features, the packages that make it, or the user's `preprocessing` change. A class keeps
its id from the live version, even without rows; new names are appended. Inherited names belong to the build key.
"""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from recordmill.pipeline import VERSION
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.counts import ShardReport, SpanReport
from recordmill.pipeline.dataset.file_names import REJECTED, REPORT, span_file, span_of_file
from recordmill.pipeline.dataset.manifest import Json, Location, Manifest, Shard, version_folder
from recordmill.pipeline.dataset.manifest_parts import MOST_BYTES
from recordmill.pipeline.dataset.paths import read_checked
from recordmill.pipeline.dataset.placement import Layout
from recordmill.pipeline.dataset.profile import FILE as PROFILE
from recordmill.pipeline.dataset.profile import Profiles, profiles_of
from recordmill.pipeline.dataset.version import read_words, without_blank
from recordmill.pipeline.errors import DatasetError, UserError
from recordmill.pipeline.safe_text import cut, public_url
from recordmill.pipeline.sources.options import PATHS
from recordmill.pipeline.sources.paths import note
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.base import Base, Forgotten, rolls_back
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_location
from recordmill.transforms.base.kinds import read_description
from recordmill.transforms.images.image_facts import COUNTS

GRAPH_PACKAGES = ("recordmill", "tensorflow", "tensorflow-text", "tensorflow-transform")
"""The packages that make the graph; other packages change records only."""
PACKAGES = ("apache-beam", "numpy", "pillow", "pyarrow", "sentencepiece", *GRAPH_PACKAGES[1:])
"""All packages that the bytes depend on."""
LEARNED_FOLDERS = ("transform_fn", "transformed_metadata", "tokenizers")
"""The folders of a version that its graph and its tokenizers lie in."""
FROM_SHARDS = ("lengths", *COUNTS)  # statistics by feature that are counted in shards; the others are learned before
SUMMARIES = "summaries"  # the folder of mergeable sums of the rows, of a version and of each span
ANALYSIS = "analysis"
FEATURE_FILES = "feature_files"
SAMPLE_SHARE = "sample_share"
LEARNED_PROFILE = "profile/learned.json"  # the profile of the rows behind a graph, beside that of the version's rows
SHOWN = 5
Names = Mapping[str, tuple[str, ...]]  # names of classes by id, by feature
KEPT_NAMES = "kept_names"


def published_path(path: str) -> str:
    """Removes private parts of a source's path: a URL's password and query, or a local path's folder."""
    return public_url(path) if "://" in path else os.path.basename(path.rstrip("/"))


def published_spec(spec: Spec) -> dict[str, Any]:
    """Returns the spec without folders of this machine."""
    published = spec.model_dump(mode="json")
    for source in published["source"]:
        source |= {name: published_path(source[name]) for name in PATHS if source.get(name)}
        if source["format"] == "python":  # a function's options may be secret
            source |= {"options": dict.fromkeys(source["options"]), "inputs": [*map(published_path, source["inputs"])]}
    for name, feature in spec.features.items():
        published["features"][name] |= {option: published_path(path) for option, path in feature.files().items()}
    return published


def package_versions() -> dict[str, str]:
    """Returns the versions of Recordmill and of `PACKAGES`."""
    return {"recordmill": VERSION} | {name: _version(name) for name in PACKAGES}


_version = cache(importlib.metadata.version)  # parses the whole description of a package, which several steps ask for


class LearnedAnewError(UserError):
    """Values of the graph changed with the new rows: no shard of the live version can be kept."""

    def __init__(self, changes: Sequence[str]) -> None:
        shown = "; ".join(changes[:SHOWN]) + ("; …" if len(changes) > SHOWN else "")
        super().__init__(f"learned values changed, all shards are written again: {shown}")


@dataclass(frozen=True)
class LiveAnalysis:
    """The analysis of the live version, to inherit or to add to."""

    output: str  # a folder or a URL
    manifest: Manifest
    spans: tuple[str, ...] = ()  # to keep without reading their rows
    is_frozen: bool = True  # whether the graph stays, whatever the rows
    has_sums: bool = True  # whether no file with the sums of all rows is missing

    @property
    def folder(self) -> Location:
        """The version's folder."""
        return version_folder(open_location(self.output), self.manifest.version)

    @property
    def learned_in(self) -> str:
        """The version that the graph was learned from: this one, or the one that it was inherited from."""
        return str(self.manifest.provenance.get(ANALYSIS, {}).get("version", self.manifest.version))

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of the graph's and the tokenizers' files in hexadecimal, by path."""
        return graph_files(self.manifest)

    @property
    def digest(self) -> str:
        """The digest of the graph."""
        return graph_digest(self.manifest)

    @property
    def statistics(self) -> dict[str, dict[str, Any]]:
        """The learned statistics by feature, as in `dataset.json`."""
        learned = self.manifest.statistics.items()
        return {name: {key: value for key, value in each.items() if key not in FROM_SHARDS} for name, each in learned}

    @property
    def summaries(self) -> dict[str, str]:
        """The SHA-256 of the kept spans' buckets of sums, by path; those of all rows if all spans are kept."""
        spans, files = set(self.spans), self.manifest.files.items() if self.spans else ()
        if self.has_sums and spans == self.manifest.spans.keys():
            return {path: entry["sha256"] for path, entry in files if path.startswith(f"{SUMMARIES}/")}
        kept = ((path, entry) for path, entry in files if span_of_file(path) in spans)
        return {path: entry["sha256"] for path, entry in kept if path.split("/")[2] == SUMMARIES}

    @property
    def learned_profile(self) -> bytes | None:
        """The profile of the rows behind the graph, by split, if the version has one. Raises: OutputError: damaged."""
        file = next((file for file in (LEARNED_PROFILE, PROFILE) if file in self.manifest.files), None)
        return None if file is None else self.read(file)

    @property
    def profiles(self) -> Profiles | None:
        """The counts of `learned_profile`. Raises: OutputError: damaged."""
        data = self.learned_profile
        try:
            return None if data is None else profiles_of(data)
        except DatasetError as error:
            raise damaged(self.output, error) from None

    def read(self, file: str) -> bytes:
        """Reads a listed file, such as one of the graph. Raises: OutputError: damaged; LearnedAnewError: not frozen."""
        try:
            return read_checked(self.folder, file, self.manifest.files[file]["sha256"])
        except DatasetError as error:
            raise damaged(self.output, error) if self.is_frozen else LearnedAnewError([str(error)]) from None

    def words(self, feature: str) -> tuple[str, ...] | None:
        """Returns the words of a feature's vocabulary by id; None without a vocabulary."""
        file = self.manifest.features.get(feature, {}).get("vocabulary")
        if file is None:
            return None
        return without_blank(self.read(file).decode().removesuffix("\n").split("\n"))

    @property
    def sample_share(self) -> float:
        """The share of the train split's images in every span's sums of pixels, 0 to 1."""
        return float(self.manifest.provenance.get(SAMPLE_SHARE, 1.0))

    @property
    def rejected_labels(self) -> int:
        """The number of rows rejected because a frozen analysis lacks their label."""
        by_reason = self.manifest.rejects.get("by_reason", {})
        return int(by_reason.get("unknown_label", 0)) if ANALYSIS in self.manifest.provenance else 0

    def to_json(self) -> dict[str, Any]:
        """Returns its entry in the provenance of a version that inherits it, with the records behind it by label."""
        of_own = self.manifest.split("train").label_counts or ()
        counts = list(self.manifest.provenance.get(ANALYSIS, {}).get("label_counts", of_own))
        return {"version": self.learned_in, "graph_sha256": self.digest, "label_counts": counts}


def damaged(output: str, fault: object) -> OutputError:
    """Says why the live version's analysis cannot be kept, and the remedies."""
    remedy = f"{rolls_back(output)}, or relearn it with `analysis: refresh`"
    return OutputError(f"the analysis cannot be kept, since the live version is damaged: {fault}; {remedy}")


def graph_files(manifest: Manifest) -> dict[str, str]:
    """Returns the SHA-256 of the files of a version's graph and tokenizers, by path; empty for an old version."""
    return {path: entry["sha256"] for path, entry in manifest.files.items() if path.split("/")[0] in LEARNED_FOLDERS}


def graph_digest(manifest: Manifest) -> str:
    """Returns the digest of a version's graph."""
    return hashlib.sha256(json.dumps(sorted(graph_files(manifest).items())).encode()).hexdigest()


def graph_changes(live: Manifest, spec: Spec, packages: Mapping[str, str], files: Mapping[str, str]) -> list[str]:
    """Lists the changes that forbid inheriting the live version's graph; `files` are SHA-256 by `text.model`."""
    before, after = live.spec, published_spec(spec)
    made, known = live.provenance.get("packages", {}), live.provenance.get(FEATURE_FILES, {})
    code = UserCode.of([spec.preprocessing], spec.folder).to_json()["files"] if spec.preprocessing else {}
    built = live.provenance.get("user_code", {}).get("files", {})
    changes = list[str]()
    for name in dict.fromkeys([*before.get("features", {}), *after["features"]]):
        old, new = before.get("features", {}).get(name), after["features"].get(name)
        if old is None or new is None:
            changes.append(f"features.{name} is {'new' if old is None else 'gone'}")
        elif old != new:
            changes += _changes(f"features.{name}.", old, new)
    return [
        *changes,
        *_changes("", *({key: each.get(key) for key in ("label", "preprocessing")} for each in (before, after))),
        *(f"the file of features.{name}" for name, sha256 in files.items() if known.get(name) != sha256),
        *(f"the code of {path}" for path, sha256 in code.items() if built.get(path) != sha256),
        *_changes("", *({name: each.get(name) for name in GRAPH_PACKAGES} for each in (made, packages))),
        *(f"features.{name} was packed by Recordmill 0.1" for name in live.features if "packed" in live.features[name]),
        *([] if live.files else ["the live version has no digests, since an earlier Recordmill published it"]),
    ]


def _changes(where: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key):
            shown = (json.dumps(old) if not isinstance(old, str) else old for old in (before.get(key), after.get(key)))
            yield f"{where}{key}: {' → '.join(map(cut, shown))}"


def names_to_keep(spec: Spec, folder: Location, manifest: Manifest) -> Names:
    """Returns the class names of a version that keep their ids, by feature. Raises: DatasetError: one is damaged."""
    kept = {}
    for name in (name for name, feature in spec.features.items() if feature.keeps_ids and name in manifest.features):
        ids = read_description(manifest.features[name]).ids
        if ids and ids.are_classes and ids.file:
            words = read_words(folder, ids.file)
            written = manifest.files.get(ids.file, {}).get("sha256")
            if written not in (None, hashlib.sha256("".join(f"{word}\n" for word in words).encode()).hexdigest()):
                raise DatasetError(f"{folder / ids.file} was changed")
            kept[name] = without_blank(words)
    return {name: words for name, words in kept.items() if words}


def continues(names: Names, before: Names) -> bool:
    """Whether every name has its earlier id."""
    return all(names.get(feature, ())[: len(words)] == words for feature, words in before.items())


class SpanError(UserError):
    """A single span cannot be built into the live version; the message says why, and what to do."""


@dataclass(frozen=True)
class Inherited:
    """The parts of the live version that the next one continues; none in a first build."""

    names: Names = field(default_factory=dict)  # class names that keep their ids, by feature
    analysis: LiveAnalysis | None = None
    """The live version's analysis, frozen or one to add to; None where all is learned."""
    base: Manifest | None = None  # live version, if its spans may be kept
    damaged: tuple[str, ...] = ()  # spans of `base` with missing files
    forgotten: Forgotten = field(default_factory=Forgotten)  # keys to leave out
    notes: tuple[str, ...] = ()  # lines for the user: what cannot be kept, and why


def inherit(
    spec: Spec, base: Base | None, options: RunOptions, feature_files: Mapping[str, str], *, keeps_spans: bool
) -> Inherited:
    """Decides what a build takes from its base: nothing without one. Raises: OutputError, SpanError, as `Given.of`."""
    if base is None or base.latest is None:
        return Inherited(forgotten=base.forgotten if base else Forgotten())
    names: Names = {}
    notes, live, frozen = list[str](), base.live, False
    if any(feature.keeps_ids for feature in spec.features.values()):
        try:
            if live is None:
                raise DatasetError(base.fault)
            names = names_to_keep(spec, base.folder, live)
        except DatasetError as error:
            remedy = f"{rolls_back(base.output)}, or give new ids by `classes: fresh`"
            what = "the ids of classes cannot be kept, since the live version is damaged"
            raise OutputError(f"{what}: {error}; {remedy}") from None
    if spec.is_frozen:
        if live is None:
            raise damaged(base.output, base.fault)
        changes = graph_changes(live, spec, package_versions(), feature_files)
        frozen = not changes
        if changes:
            notes.append(f"the frozen analysis cannot be kept, everything is learned and rebuilt: {'; '.join(changes)}")
    fault = _span_fault(spec, base, frozen, options) if keeps_spans else "its graph is another"
    if fault and options.spans:
        raise SpanError(f"--span keeps the other spans of the live version, and cannot: {fault}; build without --span")
    keeps = live is not None and spec.has_spans and options.limit is None and not fault
    missing = base.missing if keeps else {}
    has_sums = not any(span is None and f"/{SUMMARIES}/" in file for file, span in missing.items())
    kept = frozen or keeps
    analysis = LiveAnalysis(base.output, live, is_frozen=frozen, has_sums=has_sums) if live and kept else None
    lacking = sorted({span for span in missing.values() if span})
    notes += note("spans read again, since the live version lacks files", lacking)
    return Inherited(names, analysis, live if keeps else None, tuple(lacking), base.forgotten, tuple(notes))


def _span_fault(spec: Spec, base: Base, frozen: bool, options: RunOptions) -> str:
    """Says why no span of the live version can be kept; empty if they can."""
    if base.live is None:
        return f"the live version is damaged: {base.fault}"
    if base.holds_forgotten_rows:
        return "the live version holds forgotten rows"
    if spec.is_frozen:
        return "" if frozen else "the frozen analysis is another"
    holds_sums = spec.summaries and "forgotten" not in base.live.provenance
    return "" if holds_sums and not options.spans else "`analysis: refresh` learns a graph of all rows"


class SpanFiles(NamedTuple):
    """The small files of a span, which a later build reads if it keeps the span."""

    report: SpanReport
    rejected: bytes  # the lines of rejected rows


def read_spans(output: str, base: Manifest, spans: Iterable[str]) -> dict[str, SpanFiles]:
    """Reads the reports of spans of a version. Raises: OutputError: a file is missing or damaged."""
    folder, kept = version_folder(open_location(output), base.version), dict[str, SpanFiles]()
    for span in spans:
        names = [span_file(span, name) for name in (REPORT, REJECTED)]
        try:
            report, rejected = (
                read_checked(folder, name, base.files[name]["sha256"], MOST_BYTES) if name in base.files else b""
                for name in names
            )
            kept[span] = SpanFiles(SpanReport.of_bytes(report), rejected)
        except ValueError as error:
            remedy = f"build with --compact, or {rolls_back(output)}"
            what = f"the span {span} cannot be kept, since the live version is damaged"
            raise OutputError(f"{what} ({error}): {remedy}") from error
    return kept


def shards_by_group(kept: Mapping[str, SpanFiles], layout: Layout) -> dict[int, ShardReport]:
    """Returns the reports of kept shards by group in a new layout, without empty shards."""
    reports = (zip(layout.groups_of_span(name), span.report.shards, strict=True) for name, span in kept.items())
    return {group: report for group, report in chain.from_iterable(reports) if report is not None}


def kept_shards(base: Manifest, spans: Collection[str], layout: Layout) -> dict[int, Shard]:
    """Returns the shards of a version's spans by group in a new layout."""
    listed = {span: list[Shard]() for span in spans}
    for shard in (shard for split in layout.splits for shard in base.splits[split].shards):
        if shard.span in listed:
            listed[shard.span].append(shard)
    pairs = (zip(layout.groups_of_span(span), shards, strict=True) for span, shards in listed.items())
    return dict(chain.from_iterable(pairs))


def add_up_duplicates(entries: Iterable[Json]) -> Json:
    """Adds up the manifest's entries on duplicates within spans, at least one."""
    first, *others = entries
    total: dict[str, Any] = json.loads(json.dumps(first))
    for entry in others:
        _add(total, {"keys_across": entry["keys_across"], "exact": entry["exact"]})
        examples = total["exact"]["examples"]
        examples.sort(key=lambda pair: pair[0]["split"] == pair[1]["split"])  # pairs of two splits come first
        del examples[5:]
    return total


def _add(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Adds numbers and appends lists, by name and inner name."""
    for name, value in more.items():
        if isinstance(value, dict):
            _add(total.setdefault(name, {}), value)
        else:
            total[name] = total[name] + value if name in total else value
