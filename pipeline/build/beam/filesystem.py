"""Files on any filesystem: local paths by `pipeline.sources.files`, URLs by Beam's filesystems.

Beam takes four seconds of CPU to load, so it loads with the first URL listed or opened.

A pattern matches the same everywhere: `pipeline.sources.globs`. Compressed files are not decompressed. Beam lists one
folder at a time on `hdfs://`, so wildcards do not cross folders there.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import redacted
from recordmill.pipeline.sources.files import FileInfo, FileList, LocalFiles
from recordmill.pipeline.sources.globs import WILDCARD, glob_pattern, is_glob, literal_prefix

_options: list[Callable[[], Any]] = []
"""Makes the `PipelineOptions` of Beam's filesystems in this process, if they are not set yet."""


def use_options(make: Callable[[], Any]) -> None:
    """Sets the `PipelineOptions` of Beam's filesystems in this process, such as an endpoint; runners set workers'."""
    _options[:] = [make]


def _filesystems() -> Any:
    try:
        from apache_beam.io.filesystems import FileSystems
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        raise UserError(f'reading URLs needs an extra: pip install "recordmill[build]" (missing: {package})') from None
    while _options:
        FileSystems.set_options(_options.pop()())
    return FileSystems


class BeamFiles(LocalFiles):
    """Files on any filesystem; stateless, so it can be sent to workers."""

    def match(self, pattern: str) -> FileList:
        """Lists the files that a glob or a plain path matches, by path. Raises: OSError: a folder cannot be listed."""
        if "://" not in pattern:
            return super().match(pattern)
        if not is_glob(pattern):
            return FileList(sorted(_list_url(pattern), key=lambda file: file.path))
        # Beam's own globs differ (`**/` needs a folder, no quoting), so Beam lists by prefix, and this method matches.
        prefix, matches = WILDCARD.split(literal_prefix(pattern))[0], glob_pattern(pattern).fullmatch
        listed = sorted(_list_url(prefix + "**"), key=lambda file: file.path)
        return FileList(file for file in listed if file.path == pattern or matches(file.path))

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder, or a URL without wildcards holds files. Raises: OSError: it cannot be listed."""
        if "://" not in path:
            return super().is_folder(path)
        return not is_glob(path) and bool(_list_url(path.rstrip("/") + "/**", limit=1))

    def open(self, path: str) -> BinaryIO:
        """Opens a file at its first byte. Raises: OSError: missing or unreadable; a URL's stream maybe later."""
        if "://" not in path:
            return super().open(path)
        with _os_errors("open", path):
            stream = _filesystems().open(path, compression_type="uncompressed")  # `CompressionTypes.UNCOMPRESSED`
        return cast(BinaryIO, io.BufferedReader(_UrlStream(stream, path)))


@contextmanager
def _os_errors(action: str, path: str) -> Iterator[None]:
    """Turns any error of a filesystem's client into an OSError that names the path."""
    try:
        yield
    except (MemoryError, ImportError, UserError):
        raise
    except Exception as error:
        raise OSError(redacted(f"cannot {action} {path}: {_reason(error)}", path)) from error


def _reason(error: Exception) -> str:
    """Returns the innermost reason: Beam wraps errors in errors, by path."""
    causes = getattr(error, "exception_details", None)
    if isinstance(causes, dict) and causes:
        return "; ".join(map(_reason, causes.values()))
    if "Unable to get filesystem" in str(error):
        return "no filesystem reads such a URL: download the file, or install one of Beam's, such as apache-beam[azure]"
    return str(error).strip() or type(error).__name__


def _list_url(pattern: str, limit: int | None = None) -> list[FileInfo]:
    with _os_errors("list", pattern):
        listed = _filesystems().match([pattern], [limit])[0].metadata_list
    times = [float(file.last_updated_in_seconds or 0) for file in listed]
    pairs = zip(listed, times, strict=True)
    files = [FileInfo(file.path, file.size_in_bytes, time, "", time) for file, time in pairs]
    return [file for file in files if not file.path.endswith("/")]  # an empty "folder" on an object store


class _UrlStream(io.RawIOBase):
    """A stream of Beam with OSErrors for errors of any type: object stores notice a missing file only here."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream, self._path = stream, path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _os_errors("read", self._path):
            data = self._stream.read(len(buffer))
            buffer[: len(data)] = data  # ValueError: a server sent more
        return len(data)

    def readall(self) -> bytes:
        with _os_errors("read", self._path):
            return bytes(self._stream.read())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _os_errors("seek in", self._path):
            self._stream.seek(offset, whence)
            return int(self._stream.tell())

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
