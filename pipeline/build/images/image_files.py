"""The bytes of images by reference: in files, in pieces of files, or in the row itself. Needs no TensorFlow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.images.read_ahead import ReadAhead
from recordmill.pipeline.sources.files import Files, why_absent
from recordmill.pipeline.sources.images import file_path, parse
from recordmill.pipeline.sources.typing.blocks import ABSENT
from recordmill.pipeline.spec.features.image import MAX_BYTES
from recordmill.pipeline.versions.stores.base import TooLargeError
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
    ahead: ReadAhead | None = None
    """Reads that have begun."""

    def reading_ahead(self, wanted: Iterable[tuple[int, bytes, int]]) -> Self:
        """Begins to read images of stores, in the order in which they will be asked for, within a `with`.

        Args:
            wanted: the arguments of `read`.
        """
        is_remote = any("://" in root for root in self.roots)
        return replace(self, ahead=ReadAhead(self.read, wanted)) if is_remote else self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets go of what was read and not asked for."""
        if self.ahead is not None:
            self.ahead.close()

    def read(self, source: int, reference: bytes, max_bytes: int | None = None) -> bytes:
        """Reads an image's bytes, at most `max_bytes`.

        Raises:
            ImageError: `unreadable`: the file is not there; `too_large`: it was not read; `missing_value`: the row's
                bytes are empty.
            OSError: the machine, the disk or the network failed.
        """
        most = self.max_bytes if max_bytes is None else max_bytes
        if self.ahead is not None:
            return self.ahead(source, reference, most)
        parsed = parse(reference)
        if parsed.data == b"" or parsed.length == 0:
            raise ImageError(ABSENT.reason, ABSENT.message)
        _check_bytes(len(parsed.data or b"") or parsed.length or 0, most)
        if parsed.data is not None:
            return parsed.data
        full = f"{self.scratch if parsed.in_scratch else self.roots[source]}/{parsed.path}"
        try:
            return self.files.read(full, parsed.offset, parsed.length, most if parsed.length is None else None)
        except TooLargeError as error:
            raise _too_large(error.size, most) from None
        except OSError as error:
            why = why_absent(error, full, self.files)
            if why is None or parsed.in_scratch:
                raise
            raise ImageError("unreadable", f"the file {parsed.path}: {why}", parsed.path) from None

    def whole_file(self, source: int, reference: bytes) -> str | None:
        """Names an image that is a local file, by its source and its path there; None for any other."""
        path = file_path(reference)
        return None if path is None or "://" in self.roots[source] else f"{source}/{path}"


def _check_bytes(size: int, most: int) -> None:
    if size > most:
        raise _too_large(size, most)


def _too_large(size: int, most: int) -> ImageError:
    return ImageError("too_large", f"the image has {size:,} bytes; max_bytes allows {most:,}")


def image_files(planned: PlannedBuild) -> ImageFiles:
    """Creates the reader of the bytes of a build's images."""
    return ImageFiles(planned.files, planned.roots, planned.scratch, most_bytes(planned))


def most_bytes(planned: PlannedBuild) -> int:
    """Returns the largest `max_bytes` of the image features."""
    return max((options.max_bytes for options in planned.images().values()), default=MAX_BYTES)
