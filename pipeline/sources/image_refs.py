"""References to images: the value of an image's column on its way from a source to its shard.

A file of the source, a piece of one (a member of a tar file), a piece of the build's scratch, or the bytes themselves.
A reference is a byte string, so that rows stay small and plain: its first byte says which it is.

>>> parse(to_piece("a.tar", 512, 9))
Reference(path='a.tar', offset=512, length=9, in_scratch=False, data=None)
"""

from dataclasses import dataclass

FILE, PIECE, SCRATCH, INLINE = b"f", b"p", b"s", b"i"


@dataclass(frozen=True, slots=True)
class Reference:
    """An image's place, or its bytes (`data`); a whole file has no length."""

    path: str = ""
    """Relative to the folder of the source's images, or to the build's scratch folder."""
    offset: int = 0
    length: int | None = None
    in_scratch: bool = False
    data: bytes | None = None


def to_file(path: str) -> bytes:
    """Refers to a whole file of the source."""
    return FILE + path.encode()


def to_piece(path: str, offset: int, length: int) -> bytes:
    """Refers to some bytes of a file of the source."""
    return PIECE + b"%d:%d:" % (offset, length) + path.encode()


def to_scratch(path: str, offset: int, length: int) -> bytes:
    """Refers to some bytes of a file in the build's scratch folder."""
    return SCRATCH + b"%d:%d:" % (offset, length) + path.encode()


def inline(data: bytes) -> bytes:
    """Makes a reference that holds the image's bytes."""
    return INLINE + data


def file_path(reference: bytes) -> str | None:
    """Gives the path of a whole file of the source; None for any other reference, whose bytes are not copied."""
    return reference[1:].decode() if reference.startswith(FILE) else None


def parse(reference: bytes) -> Reference:
    """Reads a reference.

    Raises:
        ValueError: the bytes are no reference.
    """
    kind, rest = reference[:1], reference[1:]
    if kind == INLINE:
        return Reference(data=rest)
    if kind == FILE:
        return Reference(rest.decode())
    if kind not in (PIECE, SCRATCH):
        raise ValueError(f"no reference to an image: it begins with {kind!r}")
    offset, length, path = rest.split(b":", 2)
    return Reference(path.decode(), int(offset), int(length), in_scratch=kind == SCRATCH)
