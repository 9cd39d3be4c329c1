"""Pictures by reference: read, gated by the header, measured. A bad picture is a reject's reason, never a crash."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.image_refs import Reference, parse
from pipeline.sources.absent_files import why_absent
from pipeline.sources.base import Files
from pipeline.transcode import decodable
from pipeline.work import Work
from transforms.image import ImageError, pixel_sums
from transforms.image_header import read_header

PixelColumns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Pictures:
    """Where the pictures of a build lie."""

    files: Files
    roots: Sequence[str]
    """The folder of each source's pictures."""
    scratch: str
    """The build's scratch folder, where pictures lie whose source cannot be read again in any order."""

    def read(self, source: int, reference: bytes) -> bytes:
        """Reads a picture's bytes.

        Raises:
            ImageError: `unreadable`: the file is not there.
            OSError: the machine, the disk or the network failed.
        """
        found = parse(reference)
        if found.data is not None:
            return found.data
        full = f"{self.scratch if found.in_scratch else self.roots[source]}/{found.path}"
        try:
            return self._read(full, found)
        except OSError as error:
            why = why_absent(error, full, self.files)
            if why is None:
                raise
            raise ImageError("unreadable", f"the file {found.path}: {why}") from None

    def _read(self, full: str, found: Reference) -> bytes:
        with self.files.open(full) as file:
            if found.length is None:
                return file.read()
            file.seek(found.offset)
            return file.read(found.length)

    def load(self, source: int, reference: bytes, options: Mapping[str, Any]) -> "Loaded":
        """Reads a picture for the graph: its header is checked, and what the graph cannot decode is transcoded.

        Raises:
            ImageError: `unreadable`, `unsupported_format`, `too_many_pixels` or `undecodable_image`.
            OSError: as `read`.
        """
        data = self.read(source, reference)
        ready = decodable(data, options)
        return Loaded(ready, None if ready is data else read_header(data).format)


class Loaded(NamedTuple):
    """A picture as the graph takes it."""

    data: bytes
    transcoded: str | None
    """The format that it had, where it was transcoded."""


def pictures_of(work: Work) -> Pictures:
    """Where the pictures of a build lie, as its workers see it."""
    return Pictures(work.files, work.roots, work.path("scratch"))


References = bytes | Sequence[bytes] | None
"""A row's picture, or pictures, by reference; None where it is not measured."""


def kept(references: bytes | Sequence[bytes], options: Mapping[str, Any]) -> Sequence[bytes]:
    """The pictures of a row that are stored: one or none, or of a sequence as many as it keeps."""
    if isinstance(references, bytes):
        return [references] if references else []
    return references[: options["max_length"]]


class PixelMeter:
    """Measures pictures after resizing: the number of pixels, their sums and sums of squares by channel."""

    def __init__(self, pictures: Pictures, options: Mapping[str, Any], threads: int) -> None:
        self._pictures, self._options, self._threads = pictures, options, threads
        graph = tf.function(lambda encoded: pixel_sums(encoded, options), autograph=False)
        self._graph = graph.get_concrete_function(tf.TensorSpec([None], tf.string))  # traced here, not in the threads

    def measure(self, sources: Sequence[int], references: Sequence[References]) -> PixelColumns:
        """Gives int64 columns of shapes [rows], [rows, channels] and [rows, channels].

        They are zeros where the reference is None or the picture is not good; of several pictures they are the sums.
        """
        with ThreadPoolExecutor(self._threads) as pool:
            parts = list(pool.map(self._one, sources, references))
        sums = np.array(parts, np.int64).reshape(len(parts), 1 + 2 * self._options["channels"])
        return (sums[:, 0], *np.split(sums[:, 1:], 2, axis=1))  # type: ignore[return-value]

    def _one(self, source: int, references: References) -> npt.NDArray[np.int64]:
        wanted = kept(references or b"", self._options)
        return sum((self._sums(source, one) for one in wanted), np.zeros(1 + 2 * self._options["channels"], np.int64))

    def _sums(self, source: int, reference: bytes) -> npt.NDArray[np.int64]:
        try:
            data = self._pictures.load(source, reference, self._options).data
            return np.concatenate([np.ravel(part.numpy()) for part in self._graph(tf.constant([data]))])
        except (ImageError, tf.errors.InvalidArgumentError):
            # the row is rejected, and told of, where its shard is built
            return np.zeros(1 + 2 * self._options["channels"], np.int64)

    def is_decodable(self, data: bytes) -> bool:
        """Whether the graph can decode a picture."""
        try:
            self._graph(tf.constant([data]))
        except tf.errors.InvalidArgumentError:
            return False
        return True
