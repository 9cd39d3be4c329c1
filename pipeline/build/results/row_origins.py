"""Finds the source, file and line of a record, by reading the sources again; needs no TensorFlow.

A version does not keep rows' places. It remembers its input files, to tell which of them have changed since.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from recordmill.pipeline.build.context.build_context import RowSchema
from recordmill.pipeline.build.images.image_files import ImageFiles
from recordmill.pipeline.build.inputs.input_table import Remembered, file_sha256
from recordmill.pipeline.build.inputs.span_sources import Group, SpanSource, by_span
from recordmill.pipeline.build.plan.keys import user_code
from recordmill.pipeline.build.run_options import CHUNK_BYTES
from recordmill.pipeline.build.worker.keyed_rows import RowKeys
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.spec.model import Spec

MOST_BYTES = 1 << 30  # 1 GiB: the limit of an image's `max_bytes`


@dataclass(frozen=True)
class Origin:
    """The place of a row in the sources now."""

    file: str  # the full path of the file, or its URL
    line: int | None  # the line, or the number of the record or row, from 1; None if the file itself is the row
    since: str  # the file's changes since the version was built, for people

    def __str__(self) -> str:
        line = "" if self.line is None else f", line {self.line:,}"
        return f"{self.file}{line}; {self.since}"


def find_origins(
    spec: Spec, folder: Location, manifest: Manifest, keys: Mapping[bytes, Collection[str | None]], files: Files
) -> Iterator[tuple[bytes, Origin]]:
    """Reads the sources until it finds the rows of keys: the first of each in each span with a record.

    If paths name spans, reads only these spans' files. `keys` have the spans of their records. Raises: UserError: the
    sources cannot be read, or the spec names other columns.
    """
    spans = {span for of_key in keys.values() for span in of_key if span is not None}
    is_named = spec.has_templates and not any(manifest.spans[span].members for span in spans)
    code = user_code(spec)
    if code is not None:
        code.install()
    remembered = Remembered.read(folder, by_span=spec.has_templates)
    names: Sequence[str | None] = sorted(spans) if is_named else [None]
    for span in names:
        left = {key for key, its in keys.items() if span is None or span in its}
        sources = by_span(spec, files, [] if span is None else [span])
        for key, group, file, line in (row for source in sources for row in _rows(spec, source, left, files)):
            left.remove(key)
            yield key, Origin(group.of.reader.input_path(files)(file), line, _since(remembered, group, file, files))
            if not left:
                break


def _rows(
    spec: Spec, each: SpanSource, wanted: Collection[bytes], files: Files
) -> Iterator[tuple[bytes, Group, str, int | None]]:
    """Yields the file and the line of each row of a wanted key in a source, with the source's files."""
    columns, prefixes = spec.columns(), (each.key_prefix.encode(),)
    schema = RowSchema(columns, {}, spec.key_columns, None, None, content_key=spec.content_key, key_prefixes=prefixes)
    reader, before = each.reader, Counter[str]()
    if not any(file.bytes for file in reader.list_inputs(files, columns)):  # such as a day of an empty file
        return
    plan = reader.plan(files, schema.columns, CHUNK_BYTES)
    read_image = ImageFiles(files, (reader.image_root(files),), "", MOST_BYTES).read
    for chunk in plan.chunks:
        covered = 0
        for block in reader.read(chunk, files, schema.columns_for(()), schema.source_key):
            keys = RowKeys(block.table, chunk, schema, read_image).keys()
            for row, key in enumerate(keys):
                if key is not None and key in wanted:
                    file, line = reader.locate(chunk, block.table["@position"][row].as_py())
                    yield key, Group(each, plan.inputs), file, None if line is None else before[chunk.file] + line
            covered += block.positions
        before[chunk.file] += covered if chunk.file else 0


def _since(remembered: Remembered | None, group: Group, path: str, files: Files) -> str:
    now = next((file for file in group.files if file.path == path), None)
    if remembered is None or now is None:
        return "the version does not say whether it has changed since"
    before = remembered.row(group, path)
    if before is None:
        return "the version was built without this file"
    is_same = (before["bytes"], before["tag"]) == (now.bytes, now.seen)
    digest = before["sha256"]  # None for an object of a store
    if is_same or (digest is not None and digest == file_sha256(files, group.of.reader.input_path(files)(path))):
        return "the file is as it was when the version was built"
    return "the file has changed since the version was built"
