"""Stored images to a batch of pixels without TensorFlow: decoded, augmented and normalized into the batch's memory.

Bit for bit as `image_graph`, except that originals scaled by the reader and scaling augmentations differ by at most one
level (`pixels`, `augment.movements`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from recordmill.transforms.base.arrays import numpy_dtype
from recordmill.transforms.base.buffers import Array, Empty, pixels_read_soon
from recordmill.transforms.base.stored import Bytes, Ragged, RowError
from recordmill.transforms.images.augment.base import Acting, ImagePart, Lying, Shape
from recordmill.transforms.images.augment.chain import Augment, acting, apply_acting, output_shape
from recordmill.transforms.images.augment.movements import Crop
from recordmill.transforms.images.decode import Data, DecodeError, decode, decode_original, decode_planes, jpeg
from recordmill.transforms.images.image_stored import AnyImages, Pixels
from recordmill.transforms.images.jpeg_parts import JpegLayout, JpegPart, read_layout
from recordmill.transforms.images.pixels import normalizer, resize
from recordmill.transforms.texts.text_read import mask

SMALL = 16 << 10  # 16 KiB: smaller raw images are joined and read as one


class _Image(NamedTuple):
    """An image to read."""

    row: int
    data: Data
    turn: int
    changes: Sequence[Acting]
    part: JpegPart | None  # for the first change, if it needs less than the whole


class ImageReader:
    """Reads the images of one feature of a batch."""

    def __init__(
        self,
        name: str,
        description: AnyImages,
        dtype: str | None = None,
        augment: Augment | None = None,
        lying: Sequence[Callable[[int], Lying]] = (),
        empty: Empty = np.empty,
    ) -> None:
        """Takes the feature and its options. Raises: DatasetError: bfloat16 without ml_dtypes.

        `dtype` is the description's `pixel`, for stored pixels, or `float32` or `bfloat16`, `(pixel - offset) * scale`;
        None: the description's. `augment` changes pixels before normalization, and moves what lies on them: functions
        from a row. `empty` allocates the results.
        """
        self._name, self._description, self._augment, self._empty = name, description, augment, empty
        self._lying = lying
        self._parameters = [] if augment is None else augment.parameters.tolist()
        self._layout: JpegLayout | None = None
        self._stored: Shape = description.shape
        self._shape = self._stored if augment is None else output_shape(augment.changes, self._stored)
        self._dtype = numpy_dtype(dtype or description.dtype, ", or take dtype='float32'")
        self._pixel = np.dtype(description.pixel)
        self._normalize = normalizer(replace(description, dtype=self._dtype.name), self._dtype)
        # Intermediate pixels: memory reused at once stays in the processor's cache.
        is_constant = None not in (*self._stored, *self._shape) and not description.planes
        self._scratch = pixels_read_soon(self._stored) if is_constant else None  # type: ignore[arg-type] # no None

    def images(self, encoded: Bytes, turns: Sequence[int] | None = None) -> dict[str, Array]:
        """Reads one image a row, or none for empty bytes of an `optional` one; `turns` orient originals, 1..8.

        Returns the part "", [rows, height, width, channels]; the description's `padding` for a missing image, and
        around images of varying size, up to the largest (0 if none), their sides are the part `shape`, int64 [rows, 2].
        Raises: RowError: bytes that do not fit the description.
        """
        turns = [1] * len(encoded) if turns is None else turns
        batch, sides = self._of_any_size(encoded, turns) if None in self._shape else self._of_one_size(encoded, turns)
        return {"": batch, "shape": sides} if None in self._stored else {"": batch}

    def sequences(self, encoded: Ragged, length: int | None) -> Array:
        """Reads images: [rows, length or longest, height, width, channels], padded with 0. Raises: RowError."""
        width = int(encoded.lengths().max(initial=0)) if length is None else length
        present = mask(encoded, width)
        batch = self._empty((*present.shape, *self._shape), self._dtype)  # type: ignore[arg-type] # sequences have a size
        batch[~present] = 0
        places = np.argwhere(present)
        files = [encoded.values[offset] for offset in (encoded.splits[places[:, 0]] + places[:, 1]).tolist()]
        images = self._prepared(places[:, 0].tolist(), files, [1] * len(files))
        for (row, position), image in zip(places.tolist(), images, strict=True):
            self._read_into(batch[row, position], image)
        return batch

    def _of_one_size(self, encoded: Bytes, turns: Sequence[int]) -> tuple[Array, Array]:
        batch = self._empty((len(encoded), *self._shape), self._dtype)  # type: ignore[arg-type] # no None
        size = math.prod(batch.shape[1:]) * self._pixel.itemsize
        is_small = self._description.encoding == "raw" and self._augment is None and size <= SMALL
        if is_small and all(len(data) == size for data in encoded):  # none is missing
            joined = np.frombuffer(b"".join(encoded), self._pixel.newbyteorder("<"))
            self._normalize(joined.reshape(batch.shape), batch)
        else:
            for out, image in zip(batch, self._prepared(range(len(encoded)), encoded, turns), strict=True):
                self._read_into(out, image)
        present = np.array([len(data) > 0 for data in encoded], np.int64)
        return batch, present[:, np.newaxis] * np.array(self._shape[:2], np.int64)

    def _of_any_size(self, encoded: Bytes, turns: Sequence[int]) -> tuple[Array, Array]:
        nothing, padding = np.zeros((0, 0, self._shape[2]), self._pixel), self._description.padding
        images = self._prepared(range(len(encoded)), encoded, turns)
        read = [nothing if self._is_missing(image.data) else self._pixels(image) for image in images]
        sides = np.array([pixels.shape[:2] for pixels in read], np.int64).reshape(-1, 2)
        batch = self._empty((len(read), *sides.max(0, initial=0).tolist(), self._shape[2]), self._dtype)
        for pixels, (height, width), out in zip(read, sides.tolist(), batch, strict=True):
            self._normalize(pixels, out[:height, :width])
            out[height:] = padding
            out[:height, width:] = padding
        return batch, sides

    def _prepared(self, rows: Iterable[int], files: Bytes, turns: Iterable[int]) -> list[_Image]:
        """Cuts all JPEGs before decoding any: each step's code then stays in the processor's cache."""
        images = list[_Image]()
        for row, data, turn in zip(rows, files, turns, strict=True):
            changes = [] if self._augment is None else acting(self._augment.changes, self._parameters[row])
            part = None if self._augment is None else self._cut(data, changes)
            images.append(_Image(row, data, turn, changes, part))
        return images

    def _cut(self, data: Data, changes: Sequence[Acting]) -> JpegPart | None:
        """Cuts out the part of a JPEG for the first crop; None if the whole image is needed."""
        if self._description.encoding not in ("auto", "jpeg"):
            return None
        self._layout = layout = read_layout(data, self._layout)
        if layout is None or self._stored[:2] not in ((layout.height, layout.width), (None, None)):
            return None
        for change, values in changes[:1]:
            if isinstance(change, Crop):
                return layout.part(data, change.window(values, layout.height, layout.width))
        return None

    def _read_into(self, out: Array, image: _Image) -> None:
        if self._is_missing(image.data):
            out[...] = self._description.padding
        else:
            self._normalize(self._pixels(image, out if self._dtype == self._pixel else None), out)

    def _is_missing(self, data: Data) -> bool:
        return not len(data) and self._description.optional

    def _pixels(self, image: _Image, out: Array | None = None) -> Array:
        """Decodes and augments one image: [height, width, channels] of `pixel`, in `out` if it can be."""
        if self._augment is None:
            return self._whole(image, out if out is not None else self._scratch)
        pixels: Any = None
        if image.part is not None:
            with suppress(DecodeError):  # decoding the whole image gives a better error
                cut = jpeg(image.part.data, self._stored[2], self._scratch, most=self._description.most_pixels)
                pixels = ImagePart(cut, *image.part[1:])
        pixels = self._whole(image, self._scratch) if pixels is None else pixels
        lying, outside = [of(image.row) for of in self._lying], self._description.padding
        return apply_acting(pixels, lying, image.changes, out, mask=self._augment.mask, outside=outside)

    def _whole(self, image: _Image, out: Array | None) -> Array:
        try:
            pixels = decoded(image.data, self._description, image.turn, out)
        except DecodeError as error:
            raise RowError(image.row, f"the image '{self._name}' cannot be decoded: {error}") from error
        if None not in self._stored and pixels.shape != self._stored:
            message = f"the image '{self._name}' has the shape {list(pixels.shape)}, not {list(self._stored)}"
            raise RowError(image.row, message)
        return pixels


def decoded(data: Data, described: Pixels, turn: int = 1, out: Array | None = None) -> Array:
    """Decodes a stored image, an original upright and resized: [height, width, channels]. Raises: DecodeError."""
    if described.encoding == "original":
        options = described.pixel_options
        return resize(decode_original(data, options, turn), options)
    if described.encoding != "raw" and described.planes:
        return decode_planes(data, described.pixel, described.shape[2], described.most_pixels)
    if described.encoding != "raw":
        return decode(data, described.shape[2], out, described.most_pixels)
    shape, pixel = [side or 0 for side in described.shape], np.dtype(described.pixel)  # raw images have one size
    size = math.prod(shape) * pixel.itemsize
    if len(data) != size:
        raise DecodeError(f"it has {len(data):,} bytes, not {size:,}")
    return np.frombuffer(data, pixel.newbyteorder("<")).reshape(shape)
