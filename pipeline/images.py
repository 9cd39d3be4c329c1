"""Image bytes by reference: read, gated by the header, measured. A bad picture is a reject's reason, never a crash."""

import errno
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from pipeline.sources.base import Files
from transforms.image import ImageError, check_header, pixel_sums

PixelColumns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


MISSING = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}
"""What is wrong with one file; any other error, such as a lost connection, is wrong with the machine, and no reject."""


def read_image(files: Files, root: str, path: str, options: Mapping[str, Any]) -> bytes:
    """Reads a picture's bytes and checks its header.

    Raises:
        ImageError: `unreadable`, `unsupported_format` or `too_many_pixels`.
        OSError: the machine, the disk or the network failed.
    """
    full = f"{root}/{path}"
    try:
        with files.open(full) as file:
            data = file.read()
    except OSError as error:
        if error.errno in MISSING:
            raise ImageError("unreadable", f"the file {path}: {os.strerror(error.errno)}") from None
        if error.errno is None and not files.match(full):  # of a URL
            raise ImageError("unreadable", f"the file {path}: {os.strerror(errno.ENOENT)}") from None
        raise
    check_header(data, options["max_pixels"])
    return data


class PixelMeter:
    """Measures pictures after resizing: the number of pixels, their sums and sums of squares by channel."""

    def __init__(self, files: Files, options: Mapping[str, Any], threads: int) -> None:
        self._files, self._options, self._threads = files, options, threads
        graph = tf.function(lambda encoded: pixel_sums(encoded, options), autograph=False)
        self._graph = graph.get_concrete_function(tf.TensorSpec([None], tf.string))  # traced here, not in the threads

    def measure(self, roots: Sequence[str], paths: Sequence[str | None]) -> PixelColumns:
        """Gives int64 columns of shapes [rows], [rows, channels] and [rows, channels].

        They are zeros where the path is None or the picture is not good.
        """
        with ThreadPoolExecutor(self._threads) as pool:
            parts = list(pool.map(self._one, roots, paths))
        pixels, sums, squares = zip(*parts, strict=True) if parts else ((), (), ())
        shape = (len(parts), self._options["channels"])
        return (
            np.array(pixels, np.int64),
            np.array(sums, np.int64).reshape(shape),
            np.array(squares, np.int64).reshape(shape),
        )

    def _one(self, root: str, path: str | None) -> tuple[int, list[int], list[int]]:
        if path is not None:
            try:
                data = read_image(self._files, root, path, self._options)
                pixels, sums, squares = self._graph(tf.constant([data]))
                return int(pixels[0]), sums[0].numpy().tolist(), squares[0].numpy().tolist()
            except (ImageError, tf.errors.InvalidArgumentError):
                pass  # the row is rejected, and told of, where its shard is built
        nothing = [0] * self._options["channels"]
        return 0, nothing, nothing

    def is_decodable(self, data: bytes) -> bool:
        """Whether the graph can decode a picture."""
        try:
            self._graph(tf.constant([data]))
        except tf.errors.InvalidArgumentError:
            return False
        return True
