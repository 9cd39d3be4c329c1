"""Whole files of text, many at once: each is a text, or what is wrong with it, never an exception of its own."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from recordmill.pipeline.sources.base import Files, SourceError
from recordmill.pipeline.sources.compression import codec
from recordmill.pipeline.sources.encoded import open_utf8
from recordmill.pipeline.sources.lines import MAX_LINE_BYTES, PIECE_BYTES
from recordmill.pipeline.sources.machine_faults import is_machine_fault, why_absent
from recordmill.pipeline.sources.paths import is_utf8
from recordmill.pipeline.sources.typing.faults import Fault

READERS = 16  # files that are read at once: on a filesystem far away it is the waiting that takes time
READ_FILES = 128  # that may wait, read, in memory
READ_BYTES = 64 << 10  # 64 KiB: read at first


def read_texts(
    files: Files, paths: Sequence[str | None], encoding: str = "utf-8", what: str = "the file"
) -> Iterator[bytes | Fault | None]:
    """Reads files, decompressed, as UTF-8.

    Args:
        files: what opens them.
        paths: full paths; None for a file that is not there, which gives None.
        encoding: their encoding.
        what: how a message names such a file.

    Yields:
        In the order of the paths, the bytes of a text without a byte order mark, valid UTF-8 or not; or a fault:
        `unreadable`, `too_large` (over 64 MiB) or `invalid_utf8` where the file is not of the encoding at all.

    Raises:
        OSError: the machine or the network fails.
    """
    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, len(paths), READ_FILES):
            part = paths[start : start + READ_FILES]
            yield from pool.map(lambda path: path and _text_or_fault(files, path, encoding, what), part)


def _text_or_fault(files: Files, path: str, encoding: str, what: str) -> bytes | Fault:
    if not is_utf8(path):
        return Fault("invalid_utf8", f"{what}'s name is not UTF-8")
    try:
        text = _text(files, path, encoding)
    except SourceError:
        return Fault("invalid_utf8", f"{what} is not {encoding}")
    except OSError as error:
        fault = _unreadable(error, files, path, what)
        try:
            text = _text(files, path, encoding)  # once more, before it is believed
        except OSError as again:
            if is_machine_fault(again):
                raise
            return fault
    return text if len(text) <= MAX_LINE_BYTES else Fault("too_large", f"{what} is longer than 64 MiB")


def _text(files: Files, path: str, encoding: str) -> bytes:
    """The text of a file, of which it reads little more than 64 MiB."""
    with open_utf8(files, path, encoding) as file:
        text = b""
        while len(text) <= MAX_LINE_BYTES and (more := file.read(max(READ_BYTES, len(text)))):
            text += more
    return text


def _unreadable(error: OSError, files: Files, path: str, what: str) -> Fault:
    """Says what is wrong with a file.

    Raises:
        OSError: nothing is, but with the machine or the network.
    """
    if is_machine_fault(error):
        raise error
    try:
        with files.open(path) as file:
            while file.read(PIECE_BYTES):
                pass
    except OSError as again:
        why = why_absent(again, path, files)
        if why is None:
            raise
        return Fault("unreadable", f"{what} cannot be read: {why}", path=path)
    if codec(path) is None:
        raise error
    return Fault("unreadable", f"{what} cannot be read: its compressed data is damaged: {error.strerror}")
