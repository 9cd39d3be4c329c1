"""The bytes of images by reference: in files, in pieces of files, or in the row itself. Needs no TensorFlow."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.sources.files import Files, why_absent
from recordmill.pipeline.sources.images import Reference, file_path, parse
from recordmill.pipeline.sources.typing.blocks import ABSENT
from recordmill.pipeline.spec.features.image import MAX_BYTES
from recordmill.transforms.contract.image_header import ImageError


@dataclass(frozen=True)
class ImageFiles:
    """Reads the bytes of a build's images."""

    files: Files
    roots: Sequence[str]
    """The folder of each source's images."""
    scratch: str
    """The build's scratch folder, for images that cannot be read again from their source in any order."""
    max_bytes: int = MAX_BYTES
    """The largest `max_bytes` of the image features."""

    def read(self, source: int, reference: bytes, max_bytes: int | None = None) -> bytes:
        """Reads an image's bytes, at most `max_bytes`.

        Raises:
            ImageError: `unreadable`: the file is not there; `too_large`: it was not read; `missing_value`: the row's
                bytes are empty.
            OSError: the machine, the disk or the network failed.
        """
        parsed, most = parse(reference), self.max_bytes if max_bytes is None else max_bytes
        if parsed.data == b"" or parsed.length == 0:
            raise ImageError(ABSENT.reason, ABSENT.message)
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

    def whole_file(self, source: int, reference: bytes) -> str | None:
        """Returns the full path of an image that is a local file; None for any other."""
        path = file_path(reference)
        return None if path is None or "://" in self.roots[source] else f"{self.roots[source]}/{path}"

    def _read(self, full: str, reference: Reference, most: int) -> bytes:
        with self.files.open(full) as file:
            _check_bytes(file.seek(0, os.SEEK_END) if reference.length is None else reference.length, most)
            file.seek(reference.offset)
            return file.read() if reference.length is None else file.read(reference.length)


def _check_bytes(size: int, most: int) -> None:
    if size > most:
        raise ImageError("too_large", f"the image has {size:,} bytes; max_bytes allows {most:,}")


def image_files(planned: PlannedBuild) -> ImageFiles:
    """Creates the reader of the bytes of a build's images."""
    return ImageFiles(planned.files, planned.roots, planned.scratch, most_bytes(planned))


def most_bytes(planned: PlannedBuild) -> int:
    """Returns the largest `max_bytes` of the image features."""
    return max((options.max_bytes for options in planned.images().values()), default=MAX_BYTES)
