"""Digests the inputs of a build while its job runs, and makes their table, a version's `inputs.arrow`."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pyarrow as pa
import pyarrow.feather

from recordmill.pipeline.build.context.arrow_files import FileDigests
from recordmill.pipeline.build.input_table import SCHEMA, Group, Remembered, Times, encoded, file_sha256
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.paths import is_image

BLOCK = 1 << 12  # rows that are made at a time: as Python objects they take 300 bytes each
Digest = bytes | None
"""The SHA-256 of a file; None where it is not known yet, and of a file that cannot be read and an object of a store."""


class TableInMaking:
    """Digests local files in a thread, but those that are remembered, and images: the job reads these.

    >>> with TableInMaking(plan.inputs, files, files.times, None) as table:  # doctest: +SKIP
    ...     run_job()
    ...     table.finish(FileDigests(workspace))
    ...     data = table.feather()
    """

    def __init__(
        self,
        groups: Sequence[Group],
        files: Files,
        times: Times,
        remembered: Remembered | None,
        kept: pa.Table | None = None,
    ) -> None:
        """Begins.

        Args:
            groups: the inputs that are used, with their identity times.
            files: opens them.
            times: gives their times of change.
            remembered: the inputs of the live version.
            kept: the inputs of spans that are taken over.
        """
        self._groups, self._files, self._times, self._remembered = groups, files, times, remembered
        self._blocks = [SCHEMA.empty_table() if kept is None else kept]
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="inputs")
        self._early = self._pool.submit(lambda: [list(self._without_images(group)) for group in groups])

    def __enter__(self) -> "TableInMaking":
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._pool.shutdown()

    def finish(self, by_job: FileDigests) -> None:
        """Waits until every file is digested; reads the images whose digests the job did not leave."""
        for group, early in zip(self._groups, self._early.result(), strict=True):
            files = zip(group.files, early, strict=True)
            while block := list(islice(files, BLOCK)):
                self._blocks.append(self._block(group, block, by_job))

    def feather(self) -> bytes:
        """Gives the finished table as the content of `inputs.arrow`."""
        sink = pa.BufferOutputStream()
        pa.feather.write_feather(pa.concat_tables(self._blocks), sink, compression="zstd")
        return sink.getvalue().to_pybytes()

    def _without_images(self, group: Group) -> Iterator[Digest]:
        path = group.of.reader.input_path(self._files)
        known = self._remembered.sha256(group) if self._remembered else [None] * len(group.files)
        for file, digest in zip(group.files, known, strict=True):
            is_left = digest is not None or is_image(file.path) or self._ended.is_set()
            yield digest if is_left else self._sha256(path(file.path))

    def _block(self, group: Group, files: Sequence[tuple[FileInfo, Digest]], by_job: FileDigests) -> pa.Table:
        path = group.of.reader.input_path(self._files)
        paths = [path(file.path) for file, _ in files]
        rows = list[tuple[object, ...]]()
        for (file, early), full, late in zip(files, paths, by_job.find(paths), strict=True):
            modified = self._times.modified(file._replace(path=full))
            sha256 = early or late or self._sha256(full)
            rows.append((
                group.of.index, group.of.name, encoded(file.path), file.bytes, modified, file.modified, sha256,
                file.tag or None,
            ))  # fmt: skip
        columns = zip(*rows, strict=True)
        return pa.table([pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)], SCHEMA)

    def _sha256(self, path: str) -> Digest:
        return None if "://" in path else file_sha256(self._files, path)
