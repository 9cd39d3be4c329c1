"""Reads images by reference, checks their headers and measures them. A bad image is a reject, never a crash."""

import ctypes
import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.images.isolation import Isolation, shared_isolation
from recordmill.pipeline.build.images.memory_gate import retry_alone
from recordmill.pipeline.build.images.perceptual_hash import NONE, perceptual_hash
from recordmill.pipeline.build.images.transcode import UndecodableError, decodable
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.image_refs import Reference, parse
from recordmill.pipeline.sources.machine_faults import why_absent
from recordmill.pipeline.spec.features.image import MAX_BYTES
from recordmill.transforms.contract.image_header import check_header
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.tensorflow.image import ImageError, pixel_sums

UNDECODABLE = (tf.errors.InvalidArgumentError,)
"""Errors of the graph on an image that it cannot decode, and on a good one where memory is short."""
LARGE_BLOCK = 4 << 20  # 4 MiB
M_MMAP_THRESHOLD = -3  # malloc.h of glibc
PixelColumns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class ImageReader:
    """Reads the images of a build."""

    files: Files
    roots: Sequence[str]
    """The folder of each source's images."""
    scratch: str
    """The build's scratch folder, where images lie that cannot be read again from their source in any order."""
    max_bytes: int = MAX_BYTES
    """The largest `max_bytes` of the image features."""
    isolation: Isolation | None = None
    """Decodes untrusted images first, in other processes."""

    def read(self, source: int, reference: bytes, max_bytes: int | None = None) -> bytes:
        """Reads an image's bytes, at most `max_bytes`.

        Raises:
            ImageError: `unreadable`: the file is not there; `too_large`: it was not read.
            OSError: the machine, the disk or the network failed.
        """
        parsed, most = parse(reference), self.max_bytes if max_bytes is None else max_bytes
        if parsed.data is not None:
            _check_bytes(len(parsed.data), most)
            return parsed.data
        full = f"{self.scratch if parsed.in_scratch else self.roots[source]}/{parsed.path}"
        try:
            return self._read(full, parsed, most)
        except OSError as error:
            why = why_absent(error, full, self.files)
            if why is None or parsed.in_scratch:
                raise
            raise ImageError("unreadable", f"the file {parsed.path}: {why}", full) from None

    def _read(self, full: str, reference: Reference, most: int) -> bytes:
        with self.files.open(full) as file:
            _check_bytes(file.seek(0, os.SEEK_END) if reference.length is None else reference.length, most)
            file.seek(reference.offset)
            return file.read() if reference.length is None else file.read(reference.length)

    def load(self, source: int, reference: bytes, options: ImageOptions) -> "Loaded":
        """Reads an image for the graph: checks its header, and transcodes a format that the graph cannot decode.

        Raises:
            ImageError: `unreadable`, `too_large`, `unsupported_format`, `too_many_pixels`, `too_slow` or
                `undecodable_image`.
            OSError: as `read`.
            OutOfMemoryError: memory is not enough to transcode it.
        """
        data = self.read(source, reference, options.max_bytes)
        header = check_header(data, options.max_pixels)
        pixel_bytes = 6 if header.format == "JPEG" and header.scans == 1 else 12  # with coefficients, or alpha
        needs = header.width * header.height * pixel_bytes
        if header.in_graph and self.isolation is None:
            return Loaded(data, None, data, needs)
        decoder = decodable if self.isolation is None else self.isolation.decodable
        purpose, limits = f"decode an image of {len(data):,} bytes", {"max_pixels": options.max_pixels}
        ready = retry_alone(lambda: decoder(data, limits), purpose, (UndecodableError,), needs)
        return Loaded(ready, None if header.in_graph else header.format, data, needs)


def _check_bytes(size: int, most: int) -> None:
    if size > most:
        raise ImageError("too_large", f"the image has {size:,} bytes; max_bytes allows {most:,}")


class Loaded(NamedTuple):
    """An image as the graph takes it."""

    data: bytes
    transcoded: str | None
    """The format of the file, where it was transcoded; otherwise None."""
    source: bytes
    """The file as it was read."""
    needs: int
    """The estimated bytes of memory to decode it."""


def perceptual_hash_of(loaded: Sequence[Loaded], max_pixels: int) -> bytes:
    """Gives the perceptual hash of a row's image, 16 bytes; zeros for a row without one.

    Raises:
        OutOfMemoryError: memory is not enough to decode it.
    """
    if not loaded:
        return NONE
    data, _, _, needs = loaded[0]
    purpose = f"decode an image of {len(data):,} bytes"
    return retry_alone(lambda: perceptual_hash(data, max_pixels), purpose, needs=needs)


@functools.cache
def give_back_large_blocks() -> None:
    """Lets glibc return freed blocks of `LARGE_BLOCK` and more to the system at once, in this process for good.

    By itself it keeps up to 32 MiB of each such block: images of 64 million pixels left 0.3 GB behind.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)


def image_reader(context: PlannedBuild) -> ImageReader:
    """Creates the reader of a build's images, on a worker."""
    give_back_large_blocks()
    most = max((options.max_bytes for options in context.images().values()), default=MAX_BYTES)
    isolation = shared_isolation() if context.isolated else None
    return ImageReader(context.files, context.roots, context.path("scratch"), most, isolation)


References = bytes | Sequence[bytes] | None
"""A row's image, or images, by reference; None where it is not measured."""


def kept(references: bytes | Sequence[bytes], options: ImageOptions) -> Sequence[bytes]:
    """Gives the images of a row that are stored: one or none; a sequence is cut at `max_length`."""
    if isinstance(references, bytes):
        return [references] if references else []
    return references[: options.max_length]


Graph = Callable[[tf.Tensor], Any]


def pixel_graph(options: ImageOptions) -> Graph:
    """Traces the function of encoded images, shape [rows], that gives their `pixel_sums`."""
    graph = tf.function(lambda encoded: pixel_sums(encoded, options), autograph=False)
    return graph.get_concrete_function(tf.TensorSpec([None], tf.string))


class PixelMeter:
    """Measures images after resizing: the number of pixels, their sums and sums of squares by channel."""

    def __init__(self, reader: ImageReader, options: ImageOptions, threads: int, graph: Graph | None = None) -> None:
        self._reader, self._options, self._threads = reader, options, threads
        self._graph = graph or pixel_graph(options)  # traced here, not in the threads

    def measure(self, sources: Sequence[int], references: Sequence[References]) -> PixelColumns:
        """Gives int64 columns of shapes [rows], [rows, channels] and [rows, channels].

        They are zeros where the reference is None or the image is bad; several images of a row are summed.
        """
        with ThreadPoolExecutor(self._threads) as pool:
            parts = list(pool.map(self._row_sums, sources, references))
        sums = np.array(parts, np.int64).reshape(len(parts), 1 + 2 * self._options.channels)
        return (sums[:, 0], *np.split(sums[:, 1:], 2, axis=1))  # type: ignore[return-value]

    def _row_sums(self, source: int, references: References) -> npt.NDArray[np.int64]:
        total = np.zeros(1 + 2 * self._options.channels, np.int64)
        for reference in kept(references or b"", self._options):
            with suppress(ImageError, *UNDECODABLE):  # the row is rejected where its shard is built
                loaded = self._reader.load(source, reference, self._options)
                total += np.concatenate([np.ravel(part.numpy()) for part in self._decoded(loaded.data, loaded.needs)])
        return total

    def is_decodable(self, data: bytes) -> bool:
        """Whether the graph can decode an image."""
        try:
            self._decoded(data)
        except UNDECODABLE:
            return False
        return True

    def _decoded(self, data: bytes, needs: int = 0) -> Any:
        action = lambda: self._graph(tf.constant([data]))  # noqa: E731 - tried twice
        return retry_alone(action, f"decode an image of {len(data):,} bytes", UNDECODABLE, needs)
