"""Chooses the spans that a build reads, and those whose shards it takes over from the live version.

A span is kept where nothing changed that decides its records: its key is that of the live version's span, whose
transform graph the build keeps. Nothing of a kept span is opened; with `--span` it is not even listed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from recordmill.pipeline.build.inputs.span_sources import (
    BASE,
    COMPACT,
    SpanSource,
    by_added,
    by_span,
    seen_by,
    sources_of,
)
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.file_names import REPORT, span_file
from recordmill.pipeline.dataset.manifest import Manifest, Span
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.options import ImageFolder
from recordmill.pipeline.sources.paths import is_image, note
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.spec.model import Spec

RECIPE = "recipe_sha256"  # the manifest's digest of all that decides the records of every span, in its `provenance`
SOURCES = "sources_sha256"  # the manifest's digest of the spec's sources, of which some may have no file of a span


class SpanError(UserError):
    """A single span cannot be built into the live version; the message says why, and what to do."""


class NoDataError(SourceError):
    """A span that is to be built has no data: perhaps it has not come yet."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class SpanChoice:
    """The spans of a version to be: those that are read, and those that are taken over."""

    sources: tuple[SpanSource, ...]
    """The sources that are read."""
    built: Mapping[str, Span] = field(default_factory=dict)
    """The spans that are read, without their rows; empty where the spec has no spans."""
    kept: Mapping[str, Span] = field(default_factory=dict)
    """The spans that are taken over."""
    base: Manifest | None = None
    """The live version, where spans of it may be taken over."""
    recipe: str = ""
    """The digest of all that decides the records of every span."""
    without_rows: tuple[str, ...] = ()
    """The spans whose files hold no row, such as an empty file or a caption without its image: they are left out."""

    @cached_property
    def spans(self) -> dict[str, Span]:
        """All spans of the version, by name."""
        return dict(sorted({**self.kept, **self.built}.items()))

    @property
    def inputs_sha256(self) -> str:
        """The digest of the inputs of all spans: of kept ones those that they were built of."""
        keys = dict[str, str]()
        for name, span in self.spans.items():
            keys |= span.members or {name: span.key}
        return sha256_of(sorted(keys.items()))

    def provenance(self, spec: Spec) -> dict[str, str]:
        """Returns what a manifest must hold for `--span` to keep its spans; nothing without spans."""
        return {RECIPE: self.recipe, SOURCES: _sources_digest(spec)} if self.spans else {}

    def notes(self) -> list[str]:
        """Says which spans are read, and which are kept or gone, where the live version has spans."""
        empty = note("spans left out, because their files hold no row", self.without_rows)
        if self.base is None or not self.base.spans or self.spans.keys() == {BASE}:
            return empty
        gone = [name for name in self.base.spans if name not in self.spans and not self.base.spans[name].members]
        notes = empty + note("spans that are read", list(self.built)) + note("spans that are kept", list(self.kept))
        return notes + note("spans that are gone", [] if COMPACT in self.built else gone)

    def listed_again(self, spec: Spec, files: Files) -> "SpanChoice":
        """Lists the inputs of the spans that are read again. Raises: SourceError."""
        spans, _ = _list(spec, self.sources, files, self.recipe, again=True)
        return replace(self, built={COMPACT: _together(spans)} if COMPACT in self.built else spans)

    def kept_shards(self, split: str) -> Counter[str]:
        """Returns the number of a split's shards in each kept span."""
        shards = self.base.splits[split].shards if self.base else ()
        return Counter(shard.span for shard in shards if shard.span is not None and shard.span in self.kept)


def choose(
    spec: Spec,
    files: Files,
    recipe: str,
    base: Manifest | None = None,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    inputs: pa.Table | None = None,
    damaged: Collection[str] = (),
) -> SpanChoice:
    """Chooses what is read: some spans, all together, or those that differ from the base's or have rejects to mend.

    `inputs` are those of the base, where files without placeholders may have been added; `damaged` are the spans of
    which the base lacks files.

    Raises:
        SourceError: a source is not there, or a span to be built has no data.
        SpanError: the only spans to build cannot be built into the live version, whose others were built otherwise.
    """
    if options.spans and options.compact:
        raise SpanError("--span builds some spans and --compact reads all: give one of them")
    if options.spans:
        return _only(spec, files, recipe, base, options.spans, damaged)
    if not spec.has_spans:
        return SpanChoice(by_span(spec, files))
    if base is not None and base.spans and inputs is not None and not spec.has_templates:
        sources = by_added(spec, files, base, inputs)
    else:
        sources = by_span(spec, files)
    spans, full = _list(spec, sources, files, recipe)
    if not spans:
        raise SourceError(f"{', '.join(source.path for source in spec.source)}: no file holds a row")
    empty = tuple(dict.fromkeys(each.name for each in sources if each.name and each.name not in spans))
    if options.compact:
        together = tuple(replace(each, span=COMPACT, member=each.span) for each in full)
        return SpanChoice(together, {COMPACT: _together(spans)}, {}, base, recipe, empty)
    whole = {name: span for name, span in base.spans.items() if name not in damaged} if base else {}
    kept = {name: span for name, span in whole.items() if _is_same(name, span, spans)}
    if options.again:
        kept = {name: span for name, span in kept.items() if not span.rows.get("rejected")}
    done = set(kept).union(*(span.members for span in kept.values()))
    read = tuple(each for each in full if each.span not in done)
    built = {name: span for name, span in spans.items() if name not in done}
    return SpanChoice(read, built, kept, base, recipe, empty)


def _is_same(name: str, kept: Span, spans: Mapping[str, Span]) -> bool:
    """Whether nothing changed of a span of the live version; of one of several, of none of these."""
    keys = kept.members or {name: kept.key}
    return all(member in spans and spans[member].key == key for member, key in keys.items())


def _together(spans: Mapping[str, Span]) -> Span:
    members = {name: span.key for name, span in spans.items()}
    digest, each = sha256_of(sorted(members.items())), spans.values()
    return Span(digest, {}, sum(span.files for span in each), sum(span.bytes for span in each), digest, members)


def _only(
    spec: Spec, files: Files, recipe: str, base: Manifest | None, only: Sequence[str], damaged: Collection[str]
) -> SpanChoice:
    if not spec.has_templates:
        raise SpanError("--span: no source names spans: give a `path` with {span}, or with {YYYY}, {MM} and {DD}")
    if base and (base.provenance.get(RECIPE), base.provenance.get(SOURCES)) != (recipe, _sources_digest(spec)):
        raise SpanError(
            f"--span builds one span into the live version {base.version}, and its others were built by another spec, "
            "other code or other packages: build without --span"
        )
    sources = tuple(source for span in dict.fromkeys(only) for source in sources_of(spec, span, files))
    built, full = _list(spec, sources, files, recipe)
    for span in only:
        if span not in built or not built[span].files:
            raise NoDataError(f"--span {span}: there is no data for it in any source")
    kept = {name: span for name, span in base.spans.items() if name not in built} if base else {}
    for span in only:
        if any(span in each.members for each in kept.values()):
            raise SpanError(
                f"--span {span}: its rows lie among those that --compact put together: build without --span"
            )
    for span in kept:
        if span in damaged:
            raise SpanError(
                f"--span keeps the span {span}, which the live version lacks files of: build without --span"
            )
        if base and span_file(span, REPORT) not in base.files:
            raise SpanError(f"--span keeps the span {span}, of which rows were forgotten: build without --span")
    return SpanChoice(full, built, kept, base, recipe)


def _list(
    spec: Spec, sources: Sequence[SpanSource], files: Files, recipe: str, *, again: bool = False
) -> tuple[dict[str, Span], tuple[SpanSource, ...]]:
    """Lists the inputs of spans.

    Returns:
        The spans with their keys, and without their rows; and the sources that have files of rows.
    """
    by_name, spans, full = dict[str, list[SpanSource]](), dict[str, Span](), list[SpanSource]()
    for each in sources:
        by_name.setdefault(each.name or "", []).append(each)
    for name, of_span in by_name.items():
        span, with_rows = _span(spec, of_span, files, recipe, again)
        spans |= {name: span} if with_rows else {}
        full += with_rows
    return spans, tuple(full)


def _span(
    spec: Spec, sources: Sequence[SpanSource], files: Files, recipe: str, again: bool
) -> tuple[Span, list[SpanSource]]:
    """Lists the inputs of one span; gives it, and those of its sources that have files of rows."""
    columns, digest, count, total, full = spec.columns(), hashlib.sha256(), 0, 0, list[SpanSource]()
    for each in sources:
        kept = None if again else each.files
        listed = kept or each.reader.list_inputs(seen_by(each, files), columns)
        holds_rows = isinstance(each.source, ImageFolder) or not all(is_image(file.path) for file in listed)
        if each.name != BASE and not (listed and holds_rows):  # images beside a table's files hold none
            continue
        full.append(each)
        for file in listed:
            line = f"{each.index}\0{file.path}\0{file.bytes}\0{file.keyed}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
            count, total = count + 1, total + file.bytes
    options = [[each.index, each.key_prefix, spec.source[each.index].model_dump(mode="json")] for each in full]
    inputs = digest.hexdigest()
    return Span(sha256_of([recipe, options, inputs]), {}, count, total, inputs), full


def _sources_digest(spec: Spec) -> str:
    return sha256_of([source.model_dump(mode="json") for source in spec.source])


def sha256_of(parts: object) -> str:
    """Digests the parts of a key, in hexadecimal."""
    # The order of the spec's keys counts: it decides the ranges of hashes of the splits.
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
