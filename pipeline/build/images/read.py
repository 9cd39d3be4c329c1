"""Reads images by reference, checks their headers and measures them. A bad image is a reject, never a crash.

Under memory pressure decoders call good images damaged: if an allocation fails, TensorFlow's libjpeg says "Invalid JPEG
data". So a failed action is retried once, alone in the process: it now has the memory, or fails again.

>>> retry_alone(lambda: 7, "count", (ValueError,))
7
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from recordmill.pipeline.build.context.build_context import AnyImage, PlannedBuild
from recordmill.pipeline.build.images import masks
from recordmill.pipeline.build.images.image_files import ImageFiles
from recordmill.pipeline.build.images.isolation import Isolation, shared_isolation
from recordmill.pipeline.build.images.perceptual_hash import NONE, perceptual_hash
from recordmill.pipeline.build.images.transcode import UndecodableError, decodable, decoding_of, is_converted, pages_of
from recordmill.pipeline.build.runners.worker_environment import worker_threads
from recordmill.pipeline.sources.files import OutOfMemoryError
from recordmill.pipeline.sources.images import parse
from recordmill.transforms.base import bounds
from recordmill.transforms.base.arrays import MAGIC
from recordmill.transforms.images import color_profile, image_facts, image_header
from recordmill.transforms.images.decode import ends_early
from recordmill.transforms.images.decode_graph import decode
from recordmill.transforms.images.image_graph import pixel_sums
from recordmill.transforms.images.image_header import ImageError
from recordmill.transforms.images.image_spec import Image, ImageSequence
from recordmill.transforms.images.image_stored import PixelOptions
from recordmill.transforms.images.mask_spec import Mask, Masks
from recordmill.transforms.images.properties_graph import HEAD, orientation

NO_MEMORY = (MemoryError, tf.errors.ResourceExhaustedError)
UNDECODABLE = (tf.errors.InvalidArgumentError,)
"""The graph's errors on an undecodable image, and on a good one if memory is short."""
MESSAGE = "the header is good, the pixels cannot be decoded: the file is cut off or damaged"
MASK_BYTES = 16  # a pixel of a mask, at most, as RGBA with its codes and places
LEAST_PIXELS = 1 << 15  # as many are decoded in the time that any image takes
LARGE_BLOCK, KEPT = 4 << 20, 16 << 20  # 4 MiB, 16 MiB
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
Result = TypeVar("Result")


class MemoryGate:
    """Admits threads while memory lasts, or one thread exclusively. Not reentrant."""

    def __init__(self, limit: int = 0) -> None:
        """Takes the bytes for all threads together; one that needs more waits until the others need none."""
        self._limit, self._bytes = limit, 0
        self._changed = threading.Condition()
        self._together, self._waiting, self._is_alone = 0, 0, False

    @contextmanager
    def together(self, needs: int = 0) -> Iterator[None]:
        """Waits while a thread is alone or waits to be, or the others' needs leave too little room."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(needs) and not (self._is_alone or self._waiting))
            self._together += 1
            self._bytes += needs
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._bytes -= needs
                self._changed.notify_all()

    def _has_room(self, needs: int) -> bool:
        return not (self._bytes and needs) or self._bytes + needs <= self._limit

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits for all others, then keeps others out."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not (self._is_alone or self._together))
            self._waiting -= 1
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()


GATE = MemoryGate(max(768 << 20, worker_threads() * (128 << 20)))  # 768 MiB, or 128 MiB a thread
"""Guards all memory-hungry work of this process."""


def retry_alone(
    action: Callable[[], Result],
    purpose: str,
    doubtful: tuple[type[Exception], ...] = (),
    needs: int = 0,
    gate: MemoryGate = GATE,
) -> Result:
    """Runs an action and returns its result; if memory was short, retries it alone.

    `purpose` names it in messages, `doubtful` errors may mean a lack of memory, `needs` are its estimated bytes.
    Raises: OutOfMemoryError: memory is short even alone.
    """
    try:
        try:
            with gate.together(needs):
                return action()
        except (*NO_MEMORY, *doubtful):
            with gate.alone():
                return action()
    except NO_MEMORY:
        raise OutOfMemoryError(purpose) from None


PixelColumns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class BuildImageReader(ImageFiles):
    """Reads a build's images."""

    isolation: Isolation | None = None  # decodes untrusted images first, in other processes

    def load(self, source: int, reference: bytes, options: Image) -> "Loaded":
        """Reads an image for the graph: checks its header, and transcodes formats foreign to the graph.

        Raises:
            ImageError: `missing_value`, `unreadable`, `too_large`, `unsupported_format`, `too_many_pixels`, `too_slow`
                or `undecodable_image`.
            OSError: as `read`.
            OutOfMemoryError: memory is too short to transcode it.
        """
        data, file = self.read(source, reference, options.max_bytes), self.whole_file(source, reference)
        stated, wanted = parse(reference).sides, options.pixel_options
        converts = options.color == "srgb" and not wanted.keeps_numbers
        header = image_header.check_header(data, options.max_pixels, stated)
        profile = color_profile.foreign_profile(data, header.format) if converts else b""
        is_sequential = header.format == "JPEG" and header.scans == 1 and not profile
        pixels = header.width * header.height
        needs = pixels * (6 if is_sequential else 12 * max(1, options.planes))
        lost = [("losses", name) for name in image_facts.losses(data, header.format, wanted, stated, options.oriented)]
        purpose = f"decode an image of {len(data):,} bytes"
        is_plain = header.in_graph and not profile and not wanted.keeps_numbers and wanted.pages == "first"
        decoder = decodable if self.isolation is None else self.isolation.decodable
        is_kept = options.store == "original" or options.kind != "image"  # in the record, or in memory with its row
        limits = {**decoding_of(options), "compress": is_kept}
        is_ready = is_plain and self.isolation is None
        ready = data if is_ready else retry_alone(lambda: decoder(data, limits), purpose, (UndecodableError,), needs)
        if header.format == "JPEG" and not ready.startswith(image_header.JPEG):  # `batch.early_ends` asks for others
            lost += [("losses", image_facts.EARLY)] * retry_alone(lambda: ends_early(data), purpose, needs=needs)
        transcoded = [] if header.in_graph else [("transcoded", header.format)]
        named = color_profile.profile_name(profile) if is_converted(ready) else "broken"
        profiles = [("profiles", named)] if profile else []
        return Loaded(ready, data, needs, file, [*transcoded, *profiles, *lost], pixels)

    def load_all(
        self, source: int, references: "References", options: AnyImage, beside: Sequence["Loaded"] = ()
    ) -> Iterator["Loaded"]:
        """Reads a row's stored images one by one, with `pages: all` the pages of its files; `beside` is a mask's image.

        Raises: as `load`, `_load_mask` and `together`.
        """
        each = enumerate(kept(references or b"", options), 1)
        if isinstance(options, Mask | Masks):
            return together((self._load_mask(source, data, options, beside, number) for number, data in each))
        files = (self.load(source, reference, options) for _, reference in each)
        if not isinstance(options, ImageSequence) or options.pages == "first":
            return together(files)
        return together(islice(chain.from_iterable(map(Loaded.pages, files)), options.max_length))

    def _load_mask(
        self, source: int, data: bytes, options: masks.AnyMask, beside: Sequence["Loaded"], number: int
    ) -> "Loaded":
        """Reads the mask of an image, or of its object `number`, by reference or as shapes: as it is stored.

        Raises: ImageError: as `load` and `masks.framed_values`, or `missing_value`: the row has no image. OSError,
        OutOfMemoryError: as `load`.
        """
        if not beside:
            raise ImageError("missing_value", f"there is a mask, but no image '{options.image}'")
        image, file = beside[0].data, None
        # To ask the graph takes longer than to search for EXIF.
        is_jpeg = image.startswith(image_header.JPEG)
        may_turn = b"Exif" in image[:HEAD] if is_jpeg else b"eXIf" in image or b"EXIF" in image
        turn = int(_orientation()(tf.constant(image))) if may_turn else 1
        frame = masks.Frame.of(image, turn, options.oriented)
        needs = MASK_BYTES * frame.height * frame.width
        if options.is_reference:
            file, data = self.whole_file(source, data), self.read(source, data, options.max_bytes)
            if self.isolation is not None and not data.startswith(MAGIC):  # first where a decoder may crash
                try:
                    self.isolation.decodable(data, {"max_pixels": options.max_pixels, "color": "ignore"})
                except UndecodableError:
                    raise
                except ImageError:  # `masks` has its own rules
                    pass

        def make() -> tuple[bytes, bool, int]:
            found, work = masks.framed_values(data, options, frame, number)
            return masks.stored_mask(found, options, frame.turn), masks.is_unlearned(found, options), work

        purpose = f"decode a mask of {len(data):,} bytes"
        ready, is_unlearned, work = retry_alone(make, purpose, (UndecodableError,), needs)
        return Loaded(ready, data, needs, file, [("losses", image_facts.UNLEARNED)] * is_unlearned, work)


@cache
def _whole(options: PixelOptions) -> Any:
    return tf.function(
        partial(decode, options=options), input_signature=[tf.TensorSpec([], tf.string)], autograph=False
    )


@cache
def _orientation() -> Any:
    return tf.function(orientation, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)


class Loaded(NamedTuple):
    """An image for the graph."""

    data: bytes
    source: bytes  # the original file; empty for its further pages
    needs: int  # estimated bytes of memory to decode it
    file: str | None = None  # its name, if it is a whole local file (`ImageFiles.whole_file`)
    counts: Sequence[tuple[str, str]] = ()  # entries in `COUNTS`, each with a format, profile or loss
    pixels: int = 0  # those decoded or painted

    def decoded(self, options: AnyImage) -> npt.NDArray[Any]:
        """Decodes it upright, in its file's size, or a mask stored as PNG: [height, width, channels].

        Raises: ImageError: `undecodable_image`. OutOfMemoryError: memory is short, even alone.
        """
        graph, data = _whole(replace(options.pixel_options, size=None, shorter_side=None)), tf.constant(self.data)
        purpose = f"decode an image of {len(self.data):,} bytes"
        try:
            return retry_alone(lambda: graph(data).numpy(), purpose, UNDECODABLE, self.needs)
        except UNDECODABLE:
            raise ImageError("undecodable_image", MESSAGE) from None

    def pages(self) -> Iterator["Loaded"]:
        """Yields a file's pages; the first carries the counts of the file."""
        first, *others = pages_of(self.data)
        yield self._replace(data=first)
        yield from (Loaded(page, b"", self.needs, pixels=self.pixels) for page in others)


def together(images: Iterable[Loaded]) -> Iterator[Loaded]:
    """Yields a row's images. Raises: ImageError: `too_large` or `too_slow`: several together."""
    size = pixels = 0
    for number, image in enumerate(images):
        size += len(image.data) + len(image.source) * (image.data is not image.source)
        pixels += max(image.pixels, LEAST_PIXELS)
        if number:
            bounds.ROW_PIXELS.check(pixels)
            bounds.ROW_BYTES.check(size)
        yield image


def image_reader(context: PlannedBuild) -> BuildImageReader:
    """Creates a worker's reader of a build's images."""
    give_back_large_blocks()
    return BuildImageReader.of(context, isolation=shared_isolation() if context.isolated else None)


@cache
def give_back_large_blocks() -> None:
    """Makes glibc return freed blocks of `LARGE_BLOCK` and more at once, for the rest of this process.

    By default it keeps up to 32 MiB of each: images of 64 million pixels left 0.3 GB behind. Of smaller blocks a heap
    keeps `KEPT` bytes: without, it may return pages that the next image faults in again.
    """
    with suppress(AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
        mallopt(M_TRIM_THRESHOLD, KEPT)


References = bytes | Sequence[bytes] | None  # a row's image, or images, by reference; None: do not measure


def kept(references: bytes | Sequence[bytes], options: AnyImage) -> Sequence[bytes]:
    """Returns a row's stored images: one, none, or a sequence cut at `max_length`."""
    if isinstance(references, bytes):
        return [references] if references else []
    return references[: getattr(options, "max_length", None)]


def arguments(rows: Iterable[tuple[int, References, AnyImage]]) -> Iterator[tuple[int, bytes, int]]:
    """Yields the arguments of `ImageFiles.read` for images: of each feature of a row source, references and options."""
    for source, references, options in rows:
        if options.is_reference:
            yield from ((source, reference, options.max_bytes) for reference in kept(references or b"", options))


def perceptual_hash_of(loaded: Sequence[Loaded], options: AnyImage) -> bytes:
    """Returns the perceptual hash of a row's image, 16 bytes; zeros without one. Raises: OutOfMemoryError."""
    if not loaded:
        return NONE
    image = loaded[0]
    purpose = f"decode an image of {len(image.data):,} bytes"
    return retry_alone(
        lambda: perceptual_hash(image.data, options.max_pixels, options.pixel_options), purpose, needs=image.needs
    )


Graph = Callable[[tf.Tensor], Any]
OnBad = Callable[[int, ImageError], None]


def pixel_graph(options: Image) -> Graph:
    """Traces the function from encoded images, shape [rows], to their `pixel_sums`."""
    graph = tf.function(lambda encoded: pixel_sums(encoded, options), autograph=False)
    return graph.get_concrete_function(tf.TensorSpec([None], tf.string))


class PixelMeter:
    """Measures resized images: number of pixels, and by channel their sums and sums of squares. Thread-safe."""

    def __init__(self, reader: BuildImageReader, options: Image, graph: Graph | None = None) -> None:
        self._reader, self._options = reader, options
        self._graph = graph or pixel_graph(options)  # traced here, not in the threads

    def measure(
        self, sources: Sequence[int], references: Sequence[References], on_bad: OnBad = lambda row, error: None
    ) -> PixelColumns:
        """Returns int64 columns of shapes [rows], [rows, channels] and [rows, channels].

        They sum all images of a row; zeros for None and bad images. Calls `on_bad` with the row of an unloadable image.
        """
        rows = list(zip(sources, references, strict=True))
        wanted = ((source, images, self._options) for source, images in rows)
        with self._reader.reading_ahead(arguments(wanted)) as reader:
            parts = [self._row_sums(reader, *each, partial(on_bad, row)) for row, each in enumerate(rows)]
        sums = np.array(parts, np.int64).reshape(len(parts), 1 + 2 * self._options.channels)
        return (sums[:, 0], *np.split(sums[:, 1:], 2, axis=1))  # type: ignore[return-value]

    def _row_sums(
        self, reader: BuildImageReader, source: int, references: References, on_bad: Callable[[ImageError], None]
    ) -> npt.NDArray[np.int64]:
        total = np.zeros(1 + 2 * self._options.channels, np.int64)
        pixels = 0
        for reference in kept(references or b"", self._options):
            if pixels > bounds.ROW_PIXELS.most:
                break
            try:
                for loaded in reader.load_all(source, [reference], self._options):
                    pixels += max(loaded.pixels, LEAST_PIXELS)
                    with suppress(*UNDECODABLE):
                        sums = self._decoded(loaded.data, loaded.needs)
                        total += np.concatenate([np.ravel(part.numpy()) for part in sums])
            except ImageError as error:  # building the shard rejects the row
                on_bad(error)
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
