"""Reads images by reference, checks their headers and measures them. A bad image is a reject, never a crash."""

import ctypes
import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.images.image_files import ImageFiles, most_bytes
from recordmill.pipeline.build.images.isolation import Isolation, shared_isolation
from recordmill.pipeline.build.images.memory_gate import retry_alone
from recordmill.pipeline.build.images.perceptual_hash import NONE, perceptual_hash
from recordmill.pipeline.build.images.transcode import UndecodableError, decodable
from recordmill.transforms.contract.image_header import check_header
from recordmill.transforms.contract.kinds.image import ImageOptions
from recordmill.transforms.tensorflow.image import ImageError, pixel_sums

UNDECODABLE = (tf.errors.InvalidArgumentError,)
"""Errors of the graph on an image that it cannot decode, and on a good one where memory is short."""
LARGE_BLOCK = 4 << 20  # 4 MiB
M_MMAP_THRESHOLD = -3  # malloc.h of glibc
PixelColumns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class ImageReader(ImageFiles):
    """Reads the images of a build."""

    isolation: Isolation | None = None
    """Decodes untrusted images first, in other processes."""

    def load(self, source: int, reference: bytes, options: ImageOptions) -> "Loaded":
        """Reads an image for the graph: checks its header, and transcodes a format that the graph cannot decode.

        Raises:
            ImageError: `missing_value`, `unreadable`, `too_large`, `unsupported_format`, `too_many_pixels`, `too_slow`
                or `undecodable_image`.
            OSError: as `read`.
            OutOfMemoryError: memory is not enough to transcode it.
        """
        data, file = self.read(source, reference, options.max_bytes), self.whole_file(source, reference)
        header = check_header(data, options.max_pixels)
        pixel_bytes = 6 if header.format == "JPEG" and header.scans == 1 else 12  # with coefficients, or alpha
        needs = header.width * header.height * pixel_bytes
        if header.in_graph and self.isolation is None:
            return Loaded(data, None, data, needs, file)
        decoder = decodable if self.isolation is None else self.isolation.decodable
        purpose, limits = f"decode an image of {len(data):,} bytes", {"max_pixels": options.max_pixels}
        ready = retry_alone(lambda: decoder(data, limits), purpose, (UndecodableError,), needs)
        return Loaded(ready, None if header.in_graph else header.format, data, needs, file)


class Loaded(NamedTuple):
    """An image as the graph takes it."""

    data: bytes
    transcoded: str | None
    """The format of the file, where it was transcoded; otherwise None."""
    source: bytes
    """The file as it was read."""
    needs: int
    """The estimated bytes of memory to decode it."""
    file: str | None = None
    """The full path of the file, where it is a local one that holds nothing else."""


def perceptual_hash_of(loaded: Sequence[Loaded], max_pixels: int) -> bytes:
    """Returns the perceptual hash of a row's image, 16 bytes; zeros for a row without one.

    Raises:
        OutOfMemoryError: memory is not enough to decode it.
    """
    if not loaded:
        return NONE
    image = loaded[0]
    purpose = f"decode an image of {len(image.data):,} bytes"
    return retry_alone(lambda: perceptual_hash(image.data, max_pixels), purpose, needs=image.needs)


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
    isolation = shared_isolation() if context.isolated else None
    return ImageReader(context.files, context.roots, context.scratch, most_bytes(context), isolation)


References = bytes | Sequence[bytes] | None
"""A row's image, or images, by reference; None where it is not measured."""


def kept(references: bytes | Sequence[bytes], options: ImageOptions) -> Sequence[bytes]:
    """Returns the images of a row that are stored: one or none; a sequence is cut at `max_length`."""
    if isinstance(references, bytes):
        return [references] if references else []
    return references[: options.max_length]


Graph = Callable[[tf.Tensor], Any]
OnBad = Callable[[int, ImageError], None]


def pixel_graph(options: ImageOptions) -> Graph:
    """Traces the function of encoded images, shape [rows], that gives their `pixel_sums`."""
    graph = tf.function(lambda encoded: pixel_sums(encoded, options), autograph=False)
    return graph.get_concrete_function(tf.TensorSpec([None], tf.string))


class PixelMeter:
    """Measures images after resizing: the number of pixels, their sums and sums of squares by channel.

    May be used by several threads.
    """

    def __init__(self, reader: ImageReader, options: ImageOptions, graph: Graph | None = None) -> None:
        self._reader, self._options = reader, options
        self._graph = graph or pixel_graph(options)  # traced here, not in the threads

    def measure(
        self, sources: Sequence[int], references: Sequence[References], on_bad: OnBad = lambda row, error: None
    ) -> PixelColumns:
        """Returns int64 columns of shapes [rows], [rows, channels] and [rows, channels].

        They are zeros where the reference is None or the image is bad; several images of a row are summed. `on_bad` is
        called with the number of a row whose image cannot be loaded.
        """
        rows = enumerate(zip(sources, references, strict=True))
        parts = [self._row_sums(source, reference, partial(on_bad, row)) for row, (source, reference) in rows]
        sums = np.array(parts, np.int64).reshape(len(parts), 1 + 2 * self._options.channels)
        return (sums[:, 0], *np.split(sums[:, 1:], 2, axis=1))  # type: ignore[return-value]

    def _row_sums(
        self, source: int, references: References, on_bad: Callable[[ImageError], None]
    ) -> npt.NDArray[np.int64]:
        total = np.zeros(1 + 2 * self._options.channels, np.int64)
        for reference in kept(references or b"", self._options):
            try:
                loaded = self._reader.load(source, reference, self._options)
            except ImageError as error:  # the row is rejected where its shard is built
                on_bad(error)
                continue
            with suppress(*UNDECODABLE):
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
