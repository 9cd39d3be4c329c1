"""The sources of a spec by span: a source with placeholders is one source for each span that its files name.

>>> [(each.span, each.source.path) for each in by_span(spec, files)]  # doctest: +SKIP
[('2026-11-19', 'data/2026-11-19'), ('2026-11-20', 'data/2026-11-20')]
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.image_folder import NAMES
from recordmill.pipeline.sources.globs import Template, is_literal, is_template, literal_prefix, without_slash
from recordmill.pipeline.sources.options import (
    PATHS,
    AnnotatedImages,
    ArchiveOptions,
    ImageFolder,
    SourceOptions,
    TableOptions,
)
from recordmill.pipeline.sources.paths import planning
from recordmill.pipeline.sources.source_reader import SourceError, SourceReader
from recordmill.pipeline.spec.model import Spec

BASE = "base"  # the span of sources without placeholders, beside sources with them
COMPACT = "compact"  # the span of the rows that `--compact` put together


@dataclass(frozen=True)
class SpanSource:
    """A source that is read: one of the spec, or its part of one span."""

    source: SourceOptions
    index: int
    """The number of the source in the spec."""
    span: str | None = None
    """The span of its rows; None where the spec has none."""
    member: str | None = None
    """The span that its files name, where `--compact` puts its rows together with others'."""
    key_prefix: str = ""
    """The beginning of its rows' default keys: two days' `1.jpg` are two rows."""

    files: Sequence[FileInfo] | None = None
    """The files that it reads, with paths relative to its root; None for all."""

    @property
    def reader(self) -> SourceReader[Any]:
        """The reader of the source."""
        return reader_of(self.source)

    @property
    def name(self) -> str | None:
        """The span that its files name."""
        return self.member or self.span


def by_span(spec: Spec, files: Files) -> tuple[SpanSource, ...]:
    """Returns the sources of a spec, those with placeholders for each span; by span and source.

    Raises:
        SourceError: the files of a source with placeholders name no span.
    """
    if not spec.has_spans:
        return tuple(SpanSource(source, index) for index, source in enumerate(spec.resolved_sources()))
    sources = list[SpanSource]()
    for index, source in enumerate(spec.resolved_sources()):
        if is_template(source):
            sources += _parts(source, index, files)
        else:
            sources.append(SpanSource(source, index, BASE))
    return tuple(sorted(sources, key=lambda each: (each.span or "", each.index)))


def _parts(source: SourceOptions, index: int, files: Files) -> Iterator[SpanSource]:
    template = Template(source.path)
    with planning(source.path):
        listings = map(files.match, _patterns(source, template.glob()))
        names = {template.span_of(file.path) for listed in listings for file in listed}
    spans = sorted(filter(None, names))
    if not spans:
        raise SourceError(f"{source.path}: no file names a span")
    for span in {BASE, COMPACT} & set(spans):
        raise SourceError(f"{source.path}: no span can be named {span}: Recordmill names one of its own so")
    return (_part(source, index, span) for span in spans)


def _part(source: SourceOptions, index: int, span: str) -> SpanSource:
    """Returns the part of a source that is one span, whose name its paths can hold."""
    given = {name: path for name in PATHS if (path := getattr(source, name, None))}
    filled = {name: Template(source.path).fill(span, path) or "" for name, path in given.items()}
    paths = {name: literal_prefix(path) if is_literal(path) else path for name, path in filled.items()}
    return SpanSource(source.model_copy(update=paths), index, span, key_prefix=f"{span}/")


def sources_of(spec: Spec, span: str, files: Files) -> Iterator[SpanSource]:
    """Returns the sources of one span that have files for it, without listing others.

    Raises:
        SourceError: a folder cannot be listed.
    """
    for index, source in enumerate(spec.resolved_sources()):
        if not is_template(source):
            if span == BASE:
                yield SpanSource(source, index, BASE)
        elif (path := Template(source.path).fill(span)) is not None:
            with planning(source.path):
                if any(map(files.match, _patterns(source, path))):
                    yield _part(source, index, span)


def _patterns(source: SourceOptions, path: str) -> list[str]:
    """Returns the patterns of the files that name spans: those at a path, and those below it."""
    below = f"{without_slash(path)}/**"
    return [below] if isinstance(source, ImageFolder) else [path, below]


ADDED = re.compile(r"added-([0-9]+)")


def by_added(spec: Spec, files: Files, base: Manifest, inputs: pa.Table) -> tuple[SpanSource, ...]:
    """Returns the sources of a spec by the spans of the live version, and the files that it does not know as one more.

    `inputs` has the columns `source`, `span` and `path`. Raises: SourceError: a source is not there.
    """
    names = [name for span in base.spans for name in (base.spans[span].members or [span])]
    new = f"added-{1 + max((int(match[1]) for match in map(ADDED.fullmatch, names) if match), default=0)}"
    columns, parts = spec.columns(), list[SpanSource]()
    for index, source in enumerate(spec.resolved_sources()):
        listed = reader_of(source).list_inputs(files, columns)
        if not _are_rows_of_files(source, columns, listed):
            parts.append(SpanSource(source, index, BASE))
            continue
        row = _stem if isinstance(source, ImageFolder) else str
        known = inputs.filter(pc.equal(inputs["source"], index))
        paths = (path.decode("utf-8", "surrogateescape") for path in known["path"].to_pylist())
        span_of = dict(zip(map(row, paths), known["span"].to_pylist(), strict=True))
        by_span = dict[str, FileList]()
        for file in listed:
            by_span.setdefault(span_of.get(row(file.path), new), FileList()).append(file)
        parts += [SpanSource(source, index, span, files=of_span) for span, of_span in by_span.items()]
    return tuple(sorted(parts, key=lambda each: (each.span or "", each.index)))


def _are_rows_of_files(source: SourceOptions, columns: Columns, listed: Sequence[FileInfo]) -> bool:
    """Whether each row is of one of the listed files, and of no other."""
    if isinstance(source, ImageFolder):
        return not any(file.path.endswith(NAMES) for file in listed)
    if isinstance(source, AnnotatedImages):
        return False
    has_images = any(column.type is ColumnType.IMAGE for column in columns.values())
    return isinstance(source, ArchiveOptions) or (isinstance(source, TableOptions) and not has_images)


def _stem(path: str) -> str:
    """Returns the path of an image and of its captions without their endings."""
    return posixpath.splitext(path)[0]


def seen_by(each: SpanSource, files: Files) -> Files:
    """Returns the files that a source may see."""
    return files if each.files is None else OnlyFiles(files, each)


class OnlyFiles(Files):
    """Files of which a source sees some alone."""

    def __init__(self, files: Files, each: SpanSource) -> None:
        self._files, path = files, each.reader.input_path(files)
        self._paths = {path(file.path) for file in each.files or ()}

    def match(self, pattern: str) -> Sequence[FileInfo]:
        return FileList(file for file in self._files.match(pattern) if file.path in self._paths)

    def is_folder(self, path: str) -> bool:
        return self._files.is_folder(path)

    def open(self, path: str) -> BinaryIO:
        return self._files.open(path)
