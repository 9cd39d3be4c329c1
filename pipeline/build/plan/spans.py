"""Chooses the spans that a build reads, and those with shards to keep from the live version.

A span is kept if its key is that of the live version's span, and the build keeps that version's graph. No file of a
kept span is opened; with `--span` it is not even listed.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from recordmill.pipeline.build.inputs.span_sources import BASE, COMPACT, SpanSource
from recordmill.pipeline.build.plan.given import Given, SpanError
from recordmill.pipeline.build.plan.keys import Keys, sha256_of
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.dataset.file_names import REPORT, span_file
from recordmill.pipeline.dataset.manifest import Manifest, Span
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.sources.paths import note
from recordmill.pipeline.sources.source_reader import SourceError


class NoDataError(SourceError):
    """A span to build has no data, perhaps not yet."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class SpanChoice:
    """The spans of a version to be: those to read, and those to keep."""

    sources: tuple[SpanSource, ...]
    """The sources to read."""
    built: Mapping[str, Span] = field(default_factory=dict)
    """The spans to read, without their rows; empty where the spec has no spans."""
    kept: Mapping[str, Span] = field(default_factory=dict)
    """The spans to keep."""
    base: Manifest | None = None
    """The live version, if its spans may be kept."""
    without_rows: tuple[str, ...] = ()
    """Spans left out, since their files hold no row: an empty file, or a caption without its image."""

    @cached_property
    def spans(self) -> dict[str, Span]:
        """All spans of the version, by name."""
        return dict(sorted({**self.kept, **self.built}.items()))

    def notes(self) -> list[str]:
        """Says which spans are read, kept and gone, if the live version has spans."""
        empty = note("spans left out, because their files hold no row", self.without_rows)
        if self.base is None or not self.base.spans or self.spans.keys() == {BASE}:
            return empty
        gone = [name for name in self.base.spans if name not in self.spans and not self.base.spans[name].members]
        notes = empty + note("spans that are read", list(self.built)) + note("spans that are kept", list(self.kept))
        return notes + note("spans that are gone", [] if COMPACT in self.built else gone)

    def kept_shards(self, split: str) -> Counter[str]:
        """Returns the number of a split's shards in each kept span."""
        shards = self.base.splits[split].shards if self.base else ()
        return Counter(shard.span for shard in shards if shard.span is not None and shard.span in self.kept)


def choose(given: Given, keys: Keys, options: RunOptions) -> SpanChoice:
    """Chooses the spans to read: those named, all merged, or those that changed, are damaged or have rejects to mend.

    Raises:
        NoDataError: a named span has no data.
        SpanError: the named spans do not fit the live version, or one of the others cannot be kept.
    """
    full = tuple(source for span in given.spans.values() for source in span.sources)
    if options.spans:
        return _only(given, keys, full, tuple(dict.fromkeys(options.spans)))
    if not given.spans:
        return SpanChoice(given.sources)
    base, spans = given.inherited.base, keys.spans
    empty = tuple(dict.fromkeys(each.name for each in given.sources if each.name and each.name not in spans))
    if options.compact:
        merged = tuple(replace(each, span=COMPACT, member=each.span) for each in full)
        return SpanChoice(merged, {COMPACT: _merged(spans)}, {}, base, empty)
    kept = {name: span for name, span in (base.spans if base else {}).items() if _may_stay(name, span, given, keys)}
    if options.again:
        kept = {name: span for name, span in kept.items() if not span.rows.get("rejected")}
    done = set(kept).union(*(span.members for span in kept.values()))
    read = tuple(each for each in full if each.span not in done)
    return SpanChoice(read, {name: span for name, span in spans.items() if name not in done}, kept, base, empty)


def _may_stay(name: str, span: Span, given: Given, keys: Keys) -> bool:
    """Whether a span of the live version is whole and unchanged; of a merged one, every member."""
    members = span.members or {name: span.key}
    is_same = all(each in keys.spans and keys.spans[each].key == key for each, key in members.items())
    return is_same and name not in given.inherited.damaged


def _merged(spans: Mapping[str, Span]) -> Span:
    members = {name: span.key for name, span in spans.items()}
    digest, each = sha256_of(sorted(members.items())), spans.values()
    return Span(digest, {}, sum(span.files for span in each), sum(span.bytes for span in each), digest, members)


def _only(given: Given, keys: Keys, sources: tuple[SpanSource, ...], only: tuple[str, ...]) -> SpanChoice:
    base, built = given.inherited.base, keys.spans
    if base and any(base.provenance.get(name) != digest for name, digest in keys.provenance.items()):
        raise SpanError(
            f"--span builds one span into the live version {base.version}, and its others were built by another spec, "
            "other code or other packages: build without --span"
        )
    for span in only:
        if span not in built or not built[span].files:
            raise NoDataError(f"--span {span}: there is no data for it in any source")
    kept = {name: span for name, span in base.spans.items() if name not in built} if base else {}
    for span in only:
        if any(span in each.members for each in kept.values()):
            raise SpanError(f"--span {span}: --compact merged its rows with others': build without --span")
    for span in kept:
        if span in given.inherited.damaged:
            raise SpanError(f"--span keeps the span {span}, but the live version lacks files: build without --span")
        if base and span_file(span, REPORT) not in base.files:
            raise SpanError(f"--span keeps the span {span}, but rows of it were forgotten: build without --span")
    return SpanChoice(sources, built, kept, base)
