"""Spans of sources without placeholders: the first build's files are `base`, those added since then `added-1`, ….

The live version remembers to which span each file belongs. A file that changed or is gone changes its span, which is
built again with what is there; new files are a new span. So a folder that grows costs what was added to it.
"""

import posixpath
import re
from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.build.spans.sources import BASE, SpanSource
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.files import FileInfo, FileList, Files
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats.image_folder import NAMES
from recordmill.pipeline.sources.options import ArchiveOptions, ImageFolder, SourceOptions, TableOptions
from recordmill.pipeline.spec.model import Spec

ADDED = re.compile(r"added-([0-9]+)")


def by_added(spec: Spec, files: Files, base: Manifest, inputs: pa.Table) -> tuple[SpanSource, ...]:
    """Gives the sources of a spec by the spans of the live version, and the files that it does not know as one more.

    Args:
        spec: the spec.
        files: lists the sources.
        base: the live version.
        inputs: its inputs: the columns `source`, `span` and `path`.

    Raises:
        SourceError: a source is not there.
    """
    names = [name for span in base.spans for name in (base.spans[span].members or [span])]
    new = f"added-{1 + max((int(match[1]) for match in map(ADDED.fullmatch, names) if match), default=0)}"
    columns, parts = spec.columns(), list[SpanSource]()
    for index, source in enumerate(spec.source):
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
    has_images = any(column.type is ColumnType.IMAGE for column in columns.values())
    return isinstance(source, ArchiveOptions) or (isinstance(source, TableOptions) and not has_images)


def _stem(path: str) -> str:
    """Gives the path of an image and of its captions without their endings."""
    return posixpath.splitext(path)[0]


def seen_by(each: SpanSource, files: Files) -> Files:
    """Gives the files that a source may see."""
    return files if each.files is None else OnlyFiles(files, each)


class OnlyFiles:
    """Files of which a source sees some alone."""

    def __init__(self, files: Files, each: SpanSource) -> None:
        self._files, path = files, each.reader.input_path(files)
        self._paths = {path(file.path) for file in each.files or ()}

    def match(self, pattern: str) -> Sequence[FileInfo]:
        """Lists those of the files that a glob matches."""
        return FileList(file for file in self._files.match(pattern) if file.path in self._paths)

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder."""
        return self._files.is_folder(path)

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading."""
        return self._files.open(path)
