"""The givens of a build, and its keys: digests of all that decides a byte; spans of an unchanged key are kept.

Digested are the spec, the versions of Recordmill and its packages, the user's modules, and the listed inputs with sizes
and times. `BuildPlan.build_key` adds the live version's part. No file of a kept span is opened.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from recordmill.pipeline.build.base.live_analysis import Inherited, SpanError, inherit, package_versions
from recordmill.pipeline.build.inputs import span_sources
from recordmill.pipeline.build.inputs.span_sources import BASE, COMPACT, ListedSpan, SpanSource, digest_of
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.file_names import REPORT, span_file
from recordmill.pipeline.dataset.manifest import Manifest, Span
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.options import UserRows
from recordmill.pipeline.sources.paths import note, planning
from recordmill.pipeline.sources.user_code import UserCode
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions.base import Base

NO_PART_OF_THE_KEY = {"rejects", "gate", "analysis", "about"}
"""Stopped builds continue with a raised limit; an inherited graph is in the build key; descriptions change no byte."""
RECIPE, SOURCES = "recipe_sha256", "sources_sha256"
"""Names in a manifest's provenance: the digests of what decides the records of all spans, and of the sources."""


@dataclass(frozen=True)
class Given:
    """Everything that a build starts from, each listed once."""

    code: UserCode | None  # of the functions that the spec names
    feature_files: Mapping[str, str]
    """The SHA-256 of each file that features name, in hexadecimal, by feature and option."""
    inherited: Inherited
    sources: tuple[SpanSource, ...]  # sources, by span; with `--span` only those of the named spans
    spans: Mapping[str, ListedSpan]  # spans with files of rows; empty where the spec has none

    @classmethod
    def of(
        cls,
        spec: Spec,
        files: Files,
        base: Base | None = None,
        inputs: pa.Table | None = None,
        options: RunOptions = RunOptions(),  # noqa: B008 - frozen
        *,
        keeps_spans: bool = True,
    ) -> "Given":
        """Lists everything, without opening a source's file; the arguments and errors are those of `make_plan`."""
        code, feature_files = user_code(spec), digest_files(spec, files)
        inherited = inherit(spec, base, options, feature_files, keeps_spans=keeps_spans)
        if options.spans and options.compact:
            raise SpanError("--span builds some spans and --compact reads all: give one of them")
        if options.spans and not spec.has_templates:
            raise SpanError("--span: no source names spans: give a `path` with {span} or {YYYY}, {MM} and {DD}")
        sources = span_sources.by_span(spec, files, options.spans, inherited.base, inputs)
        spans = span_sources.list_spans(sources, files) if spec.has_spans else {}
        if spec.has_spans and not any(span.bytes for span in spans.values()) and not options.spans:
            raise SourceError(f"{', '.join(source.path for source in spec.source)}: no file holds a row")
        return cls(code, feature_files, inherited, sources, spans)


def user_code(spec: Spec) -> UserCode | None:
    """Returns the user's modules that the spec names; None if it names no function."""
    references = [name for source in spec.source if isinstance(source, UserRows) for name in source.references()]
    references += filter(None, [spec.preprocessing, spec.filter])
    return UserCode.of(references, spec.folder) if references else None


def digest_files(spec: Spec, files: Files) -> dict[str, str]:
    """Returns the SHA-256 of each file that features name. Raises: SourceError."""
    digests = dict[str, str]()
    for name, path in spec.files().items():
        with planning(path), files.open(path) as file:
            digests[name] = hashlib.sha256(file.read()).hexdigest()
    return digests


class NoDataError(SourceError):
    """A span to build lacks data, perhaps not for long."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class Keys:
    """The keys of a build and of spans."""

    parts: Mapping[str, Any]  # all that decides a byte, except the inputs and the live version
    spans: Mapping[str, Span]  # listed spans with keys, without rows; empty if the spec names none

    @classmethod
    def of(cls, spec: Spec, given: Given, limit: int | None = None) -> "Keys":
        """Names a build of what is given; `limit` is a trial's number of rows."""
        parts = key_parts(spec, given.code, given.feature_files) | ({} if limit is None else {"limit": limit})
        return cls(parts, cls(parts, {}).of_spans(given.spans))

    @cached_property
    def recipe(self) -> str:
        """The digest of what decides the records of all spans; each span's key has its own sources."""
        spec = {name: option for name, option in self.parts["spec"].items() if name != "source"}
        return sha256_of({**self.parts, "spec": spec})

    @property
    def provenance(self) -> dict[str, str]:
        """The manifest's part by which `--span` recognizes spans that it can keep."""
        return {RECIPE: self.recipe, SOURCES: sha256_of(self.parts["spec"]["source"])}

    def source_key(self, inputs_sha256: str) -> str:
        """Digests the spec, the packages and the inputs."""
        return sha256_of({**self.parts, "inputs": inputs_sha256})

    def of_spans(self, listed: Mapping[str, ListedSpan]) -> dict[str, Span]:
        """Returns spans as listed, with their keys."""
        sources, spans = self.parts["spec"]["source"], dict[str, Span]()
        for name, span in listed.items():
            options = [[each.index, each.key_prefix, sources[each.index]] for each in span.sources]
            key = sha256_of([self.recipe, options, span.sha256])
            spans[name] = Span(key, {}, span.files, span.bytes, span.sha256)
        return spans


def key_parts(spec: Spec, code: UserCode | None, files: Mapping[str, str]) -> dict[str, Any]:
    """Returns all that decides a byte of the result, with a place for the digest of the inputs."""
    parts: dict[str, Any] = {"spec": spec.model_dump(mode="json", exclude=NO_PART_OF_THE_KEY)}
    parts |= {"packages": package_versions(), "inputs": None}
    parts |= {"code": code.sha256} if code else {}
    return parts | ({"files": list(files.values())} if files else {})


def listing_key(spec: Spec, files: Files) -> str:
    """Returns the source key of a plan that uses all listed files. Raises: UserError, OSError: one is missing."""
    given = Given.of(spec, files)
    keys = Keys.of(spec, given)
    if spec.has_spans:
        return keys.source_key(spans_digest(keys.spans))
    return keys.source_key(digest_of(enumerate(each.listed(files) for each in given.sources)))


def sighting_key(spec: Spec, files: Files) -> str:
    """Digests as `listing_key`, and for local files also their tags on this machine. Raises: as `listing_key`."""
    parts = key_parts(spec, user_code(spec), digest_files(spec, files))
    groups = enumerate(group.files for group in span_sources.list_groups(spec, files))
    return sha256_of(parts | {"seen": digest_of(groups, "seen")})


@dataclass(frozen=True)
class SpanChoice:
    """The spans of a version to be: those to read, and those to keep."""

    sources: tuple[SpanSource, ...]  # to read
    built: Mapping[str, Span] = field(default_factory=dict)
    """The spans to read, without their rows; empty if the spec names none."""
    kept: Mapping[str, Span] = field(default_factory=dict)
    base: Manifest | None = None  # live version, if its spans may be kept

    @cached_property
    def spans(self) -> dict[str, Span]:
        """All spans of the version, by name."""
        return dict(sorted({**self.kept, **self.built}.items()))

    def notes(self) -> list[str]:
        """Says which spans are read, kept and gone, if the live version has spans."""
        if self.base is None or not self.base.spans or self.spans.keys() == {BASE}:
            return []
        gone = [name for name in self.base.spans if name not in self.spans and not self.base.spans[name].members]
        notes = note("spans read", list(self.built)) + note("spans kept", list(self.kept))
        return notes + note("spans gone", [] if COMPACT in self.built else gone)

    def kept_shards(self, split: str) -> Counter[str]:
        """Returns the number of a split's shards in each kept span."""
        shards = self.base.splits[split].shards if self.base else ()
        return Counter(shard.span for shard in shards if shard.span is not None and shard.span in self.kept)


def choose(given: Given, keys: Keys, options: RunOptions) -> SpanChoice:
    """Chooses spans to read: named, merged, changed, damaged, or with rejects. Raises: SpanError, NoDataError."""
    full = tuple(source for span in given.spans.values() for source in span.sources)
    if options.spans:
        return _only(given, keys, full, tuple(dict.fromkeys(options.spans)))
    if not given.spans:
        return SpanChoice(given.sources)
    base, spans = given.inherited.base, keys.spans
    if options.compact:
        sources = tuple(replace(each, span=COMPACT, member=each.span) for each in full)
        together, each = {name: span.key for name, span in spans.items()}, spans.values()
        digest = sha256_of(sorted(together.items()))
        merged = Span(digest, {}, sum(span.files for span in each), sum(span.bytes for span in each), digest, together)
        return SpanChoice(sources, {COMPACT: merged}, {}, base)
    kept = dict[str, Span]()
    for name, span in (base.spans if base else {}).items():  # whole and unchanged ones; of a merged one, every member
        members = span.members or {name: span.key}
        is_same = all(each in spans and spans[each].key == key for each, key in members.items())
        if is_same and name not in given.inherited.damaged and not (options.again and span.rows.get("rejected")):
            kept[name] = span
    done = set(kept).union(*(span.members for span in kept.values()))
    read = tuple(each for each in full if each.span not in done)
    return SpanChoice(read, {name: span for name, span in spans.items() if name not in done}, kept, base)


def _only(given: Given, keys: Keys, sources: tuple[SpanSource, ...], only: tuple[str, ...]) -> SpanChoice:
    base, built = given.inherited.base, keys.spans
    if base and any(base.provenance.get(name) != digest for name, digest in keys.provenance.items()):
        raise SpanError(
            f"--span builds one span into the live version {base.version}, and its others were built by another spec, "
            "other code or other packages: build without --span"
        )
    for span in only:
        if span not in built or not built[span].bytes:
            raise NoDataError(f"--span {span}: no source has data for it")
    kept = {name: span for name, span in base.spans.items() if name not in built} if base else {}
    for span in only:
        if any(span in each.members for each in kept.values()):
            raise SpanError(f"--span {span}: --compact merged its rows with others': build without --span")
    for span in kept:
        if span in given.inherited.damaged:
            raise SpanError(f"--span keeps the span {span}, but files of it are missing: build without --span")
        if base and span_file(span, REPORT) not in base.files:
            raise SpanError(f"--span keeps the span {span}, but rows of it were forgotten: build without --span")
    return SpanChoice(sources, built, kept, base)


def spans_digest(*spans: Mapping[str, Span]) -> str:
    """Digests the inputs of spans; for merged ones, the members' keys."""
    keys = dict[str, str]()
    for name, span in (pair for some in spans for pair in some.items()):
        keys |= span.members or {name: span.key}
    return sha256_of(sorted(keys.items()))


def sha256_of(parts: object) -> str:
    """Digests the parts of a key, in hexadecimal."""
    # The order of the spec's keys counts: it decides the ranges of hashes of the splits.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
