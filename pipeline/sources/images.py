"""References to images: the value of an image column on its way from a source to its shard.

A reference points to a file of the source, a piece of one (a tar member), a piece of the build's scratch, or holds the
bytes themselves. It is a byte string, which keeps rows small; its first byte tells the kind.

Paths in rows are untrusted. A path is relative to the folder of the file that names it, or to the source's `images`
folder; an absolute path or URL must lie inside the source's folder of images. A symbolic link out of that folder is
refused, but followed when the folder itself is listed.

>>> parse(to_piece("a.tar", 512, 9))
Reference(path='a.tar', offset=512, length=9, in_scratch=False, data=None)
"""

import base64
import binascii
import os
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

import pyarrow as pa

from recordmill.pipeline.sources.faults import Fault, Faults
from recordmill.pipeline.sources.paths import Inside, inside, join
from recordmill.transforms.base.columns import ImageBase

FILE, PIECE, SCRATCH, INLINE, SIZED = b"f", b"p", b"s", b"i", b"z"
SIDES = re.compile(r"[1-9]\d* x [1-9]\d*")
DATA_URL = "data:"


@dataclass(frozen=True, slots=True)
class Reference:
    """An image's place, or its bytes (`data`); `length` is None for a whole file."""

    path: str = ""  # relative to the source's folder of images, or to the build's scratch folder
    offset: int = 0
    length: int | None = None
    in_scratch: bool = False
    data: bytes | None = None
    sides: str = ""  # the annotated width and height, `200 x 100`


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
    """Returns the path of a whole file of the source; None for other references."""
    return parse(reference).path if reference[:1] in (FILE, SIZED) else None


def with_sides(reference: bytes | None, sides: str | None) -> bytes | None:
    """Adds an annotated width and height above 0 to a reference to a whole file."""
    is_file = reference and sides and reference[:1] == FILE and SIDES.fullmatch(sides)
    return SIZED + f"{sides}:".encode() + reference[1:] if is_file and reference else reference


def parse(reference: bytes) -> Reference:
    """Parses a reference. Raises: ValueError: invalid bytes."""
    kind, rest = reference[:1], reference[1:]
    if kind == INLINE:
        return Reference(data=rest)
    if kind == FILE:
        return Reference(rest.decode())
    if kind == SIZED:
        sides, name = rest.decode().split(":", 1)
        return Reference(name, sides=sides)
    if kind not in (PIECE, SCRATCH):
        raise ValueError(f"invalid reference to an image: it begins with {kind!r}")
    offset, length, path = rest.split(b":", 2)
    return Reference(path.decode(), int(offset), int(length), in_scratch=kind == SCRATCH)


def references(name: str, values: pa.Array, base: ImageBase, faults: Faults) -> pa.Array:
    """Makes references, Arrow `binary`, from paths and `data:` URLs: shape [rows], null if missing or bad."""
    made = list[bytes | None]()
    root, folder, *ending = base
    links = Inside(root)
    for row, value in enumerate(values.cast(pa.binary()).to_pylist()):
        result = None if value is None or not value.strip() else _reference(value, links, folder, *ending)
        if isinstance(result, tuple):
            faults.setdefault(row, Fault(*result, name))
        made.append(result if isinstance(result, bytes) else None)
    return pa.array(made, pa.binary())


def inlined(values: pa.Array) -> pa.Array:
    """Makes references that hold images' bytes, Arrow `binary` of shape [rows]; empty bytes become null."""
    return pa.array([inline(data) if data else None for data in values.to_pylist()], pa.binary())


def _reference(value: bytes, links: Inside, folder: str, ending: str = "") -> bytes | tuple[str, str]:
    """Returns a reference, or a fault's reason code and message."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "invalid_utf8", "the column's bytes are not UTF-8"
    if text[:5].lower() == DATA_URL:  # RFC 2397
        head, comma, payload = text[len(DATA_URL) :].partition(",")
        if not comma:
            return "unreadable", "the data: URL has no comma"
        if not head.lower().endswith(";base64"):
            return inline(unquote_to_bytes(payload))
        try:
            return inline(base64.b64decode("".join(payload.split()), validate=True))
        except (binascii.Error, ValueError):
            return "unreadable", "the data: URL is not base64"
    text, whole = text + ending, f"{links.root}/"
    folder, text = ("", text.removeprefix(whole)) if text.startswith(whole) else (folder, text)
    path = inside(folder, text, in_store=not links.is_local)
    slashed = inside(folder, text.replace("\\", "/")) if "\\" in text else None  # a Windows path
    if slashed and os.path.lexists(join(links.root, slashed)) and not os.path.lexists(join(links.root, path or "")):
        path = slashed
    if path is None:
        return "forbidden_path", "the path is absolute, is a URL, or leaves the source's folder"
    path = links.spelled(path)
    if not links.holds(path):
        return "forbidden_path", "the path is a link that leaves the source's folder"
    return to_file(path)
