"""The sources of a spec by span, and their files: a source with placeholders counts once per span."""

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.sources import options
from recordmill.pipeline.sources.faults import NoRowError, SourceError
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.image_folder import NAMES
from recordmill.pipeline.sources.globs import Template, folder_prefix, is_literal, literal_prefix, without_slash
from recordmill.pipeline.sources.options import is_template
from recordmill.pipeline.sources.paths import is_image, note, planning
from recordmill.pipeline.sources.source_reader import EMPTY, Plan, SourceReader, TableReader
from recordmill.pipeline.spec.model import Spec
from recordmill.transforms.base.columns import Columns, ColumnType

BASE = "base"  # the span of sources without placeholders
COMPACT = "compact"  # the span that `--compact` merges all rows into
NO_DATE = "left out, because their paths name no date"
NO_ROW = "spans left out, because their files hold no row"
ADDED = re.compile(r"added-([0-9]+)")


@dataclass(frozen=True)
class SpanSource:
    """A source to read: one of the spec, or its part of one span."""

    source: options.SourceOptions
    index: int  # of the source in the spec
    columns: Columns  # to read
    span: str | None = None  # of its rows, if the spec has spans
    member: str | None = None  # span in its files' names, where `--compact` merges spans
    top: str | None = None  # the folder of all spans, with a slash
    key_prefix: str = ""  # the prefix of default keys: two days' `1.jpg` are two rows
    files: Sequence[FileInfo] | None = None  # the files that it reads, with paths relative to its root; None for all

    @property
    def reader(self) -> SourceReader[Any]:
        return reader_of(self.source)

    @property
    def name(self) -> str | None:
        """The span in its files' names."""
        return self.member or self.span

    def folder(self, files: Files) -> str:
        """Returns the folder of a span's files, below that of all spans; empty if these share it."""
        return "" if self.top is None else f"{self.reader.root(files)}/"[len(self.top) : -1]

    def listed(self, files: Files, *, again: bool = False) -> Sequence[FileInfo]:
        """Lists its files, unless `files` holds them already; `again` lists them anyway. Raises: SourceError."""
        return (not again and self.files) or self.reader.list_inputs(self._seen(files), self.columns)

    def planned(self, files: Files, chunk_bytes: int) -> Plan:
        """Plans the source as `SourceReader.plan`; a span may have no row."""
        try:
            return self.reader.plan(self._seen(files), self.columns, chunk_bytes)
        except NoRowError:
            if self.span in (None, BASE):
                raise
            return Plan([], 0, inputs=self.listed(files), is_exact=True)

    def _seen(self, files: Files) -> Files:
        return files if self.files is None else OnlyFiles(files, self)


class Group(NamedTuple):
    """The files of one source, with paths as in `Plan.inputs`."""

    of: SpanSource
    files: Sequence[FileInfo]


class ListedSpan(NamedTuple):
    """The sources of one span that have files of rows, and what their files add up to."""

    sources: tuple[SpanSource, ...]
    files: int
    bytes: int
    sha256: str  # of the names, sizes and times


def list_groups(spec: Spec, files: Files, only: Sequence[str] = ()) -> list[Group]:
    """Lists all files that a plan may use, opening none; `only` as in `by_span`. Raises: OSError, and as `by_span`."""
    return [Group(each, each.listed(files)) for each in by_span(spec, files, only)]


def list_spans(sources: Iterable[SpanSource], files: Files, *, again: bool = False) -> dict[str, ListedSpan]:
    """Lists the files of spans, by name; leaves out spans without files of rows. Raises: SourceError."""
    by_name = dict[str, list[Group]]()
    for each in sources:
        group, of_span = Group(each, each.listed(files, again=again)), by_name.setdefault(each.name or "", [])
        if each.name == BASE or _has_rows(group):
            of_span.append(group)
    spans = dict[str, ListedSpan]()
    for name, groups in by_name.items():
        sizes = [file.bytes for group in groups for file in group.files]
        if groups:
            digest = digest_of((each.of.index, each.files) for each in groups)
            spans[name] = ListedSpan(tuple(group.of for group in groups), len(sizes), sum(sizes), digest)
    return spans


def _has_rows(group: Group) -> bool:
    """Whether any file may hold a row: images beside a table's files hold none."""
    is_folder = isinstance(group.of.source, options.ImageFolder)
    return bool(group.files) and (is_folder or not all(is_image(file.path) for file in group.files))


def digest_of(listings: Iterable[tuple[int, Iterable[FileInfo]]], content: str = "keyed") -> str:
    """Digests the names and sizes of numbered sources' files, and an attribute that stands for their content."""
    digest, content_of = hashlib.sha256(), attrgetter(content)
    for index, files in listings:
        for file in files:
            line = f"{index}\0{file.path}\0{file.bytes}\0{content_of(file)}\n"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def by_span(
    spec: Spec, files: Files, only: Sequence[str] = (), base: Manifest | None = None, inputs: pa.Table | None = None
) -> tuple[SpanSource, ...]:
    """Returns the sources of a spec, those with placeholders once per span; by span and source.

    `only` names spans to find, without listing others. If no path has placeholders, files missing from the spans of
    `base`, the live version with `inputs`, are one more span. Raises: SourceError: a source is missing, or its files
    name no span.
    """
    columns, outside = spec.columns(), BASE if spec.has_spans else None
    whole = [SpanSource(source, index, columns, outside) for index, source in enumerate(spec.resolved_sources())]
    if only:
        return tuple(part for span in dict.fromkeys(only) for each in whole for part in _of_span(each, span, files))
    if base and base.spans and inputs is not None and not spec.has_templates:
        parts = list(_by_added(whole, files, base, inputs))
    else:
        parts = [part for each in whole for part in (_parts(each, files) if is_template(each.source) else [each])]
    return tuple(sorted(parts, key=lambda part: (part.span or "", part.index)))


def _of_span(whole: SpanSource, span: str, files: Files) -> Iterator[SpanSource]:
    if not is_template(whole.source):
        yield from [whole] if span == BASE else []
    elif (path := Template(whole.source.path).fill(span)) is not None:
        with planning(whole.source.path):
            if any(map(files.match, _patterns(whole.source, path))):
                yield _part(whole, span)


def _parts(whole: SpanSource, files: Files) -> Iterator[SpanSource]:
    spans, unnamed = _spans(whole.source, files)
    if not spans:
        raise SourceError(f"{whole.source.path}: no file names a span{'; '.join(['', *note(NO_DATE, unnamed)])}")
    for span in {BASE, COMPACT} & set(spans):
        raise SourceError(f"{whole.source.path}: no span can be named {span}: Recordmill uses that name")
    return (_part(whole, span) for span in spans)


def _spans(source: options.SourceOptions, files: Files) -> tuple[list[str], list[str]]:
    """Returns the names of a source's spans, and paths of their shape that name none."""
    template, names = Template(source.path), dict[str, str | None]()
    with planning(source.path):
        for file in chain.from_iterable(map(files.match, _patterns(source, template.glob()))):
            names[template.named(file.path)] = template.span_of(file.path)
    return sorted({*filter(None, names.values())}), sorted(path for path, name in names.items() if name is None)


def left_out(spec: Spec, files: Files) -> list[str]:
    """Says what the sources of a plan without `only` leave out: paths of no date, spans and files without content."""
    unnamed, empty = list[str](), list[str]()
    for source in spec.resolved_sources():
        if is_template(source):
            unnamed += _spans(source, files)[1]
        elif isinstance(reader := getattr(reader_of(source), "inner", reader_of(source)), TableReader):
            empty += reader.empty(files)
    groups = list_groups(spec, files) if spec.has_templates else []
    without = {each.of.name or BASE for each in groups} - {each.of.name for each in groups if _has_rows(each)} - {BASE}
    return note(NO_DATE, unnamed) + note(NO_ROW, sorted(without)) + note(EMPTY, empty)


def _part(whole: SpanSource, span: str) -> SpanSource:
    """Returns a source's part of one span; its paths contain the span's name."""
    source = whole.source
    given = {name: path for name in options.PATHS if (path := getattr(source, name, None))}
    filled = {name: Template(source.path).fill(span, path) or "" for name, path in given.items()}
    paths = {name: literal_prefix(path) if is_literal(path) else path for name, path in filled.items()}
    top = folder_prefix(Template(source.path).glob())
    return replace(whole, source=source.model_copy(update=paths), span=span, top=top, key_prefix=f"{span}/")


def _patterns(source: options.SourceOptions, path: str) -> list[str]:
    """Returns the patterns of the files at a path and below it, which name spans."""
    below = f"{without_slash(path)}/**"
    return [below] if isinstance(source, options.ImageFolder) else [path, below]


def _by_added(whole: Sequence[SpanSource], files: Files, base: Manifest, inputs: pa.Table) -> Iterator[SpanSource]:
    names = [name for span in base.spans for name in (base.spans[span].members or [span])]
    new = f"added-{1 + max((int(match[1]) for match in map(ADDED.fullmatch, names) if match), default=0)}"
    for each in whole:
        listed = each.listed(files)
        if not _are_rows_of_files(each, listed):
            yield each
            continue
        is_folder = isinstance(each.source, options.ImageFolder)
        # An image and its captions share what is before `.jpg`.
        row = (lambda path: posixpath.splitext(path)[0]) if is_folder else str
        known = inputs.filter(pc.equal(inputs["source"], each.index))
        paths = (path.decode("utf-8", "surrogateescape") for path in known["path"].to_pylist())
        span_of = dict(zip(map(row, paths), known["span"].to_pylist(), strict=True))
        of_span = dict[str, FileList]()
        for file in listed:
            of_span.setdefault(span_of.get(row(file.path), new), FileList()).append(file)
        for span, part in of_span.items():
            yield replace(each, span=span, files=part)


def _are_rows_of_files(each: SpanSource, listed: Sequence[FileInfo]) -> bool:
    """Whether each row comes from exactly one of the listed files."""
    source = each.source
    if isinstance(source, options.ImageFolder):
        return not any(file.path.endswith(NAMES) for file in listed)
    if isinstance(source, options.AnnotatedImages) or source.joined:
        return False
    has_images = any(column.type is ColumnType.IMAGE for column in each.columns.values())
    return isinstance(source, options.ArchiveOptions) or (isinstance(source, options.TableOptions) and not has_images)


class OnlyFiles(Files):
    """The files that one source may see."""

    def __init__(self, files: Files, each: SpanSource) -> None:
        self._files, path = files, each.reader.input_path(files)
        self._paths = {path(file.path) for file in each.files or ()}

    def match(self, pattern: str) -> Sequence[FileInfo]:
        return FileList(file for file in self._files.match(pattern) if file.path in self._paths)

    def is_folder(self, path: str) -> bool:
        return self._files.is_folder(path)

    def open(self, path: str) -> BinaryIO:
        return self._files.open(path)
