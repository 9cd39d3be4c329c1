"""Images in a column of a source: from paths, `data:` URLs and bytes to references (`pipeline.sources.image_refs`).

A path is relative to the folder of the file that names it, or to the source's `images` folder where that is given. A
path that is absolute, or a URL, is taken where it lies inside the source's folder of images. What a row names is not
trusted: a symbolic link that leads out of that folder is refused, which is followed where the folder itself is listed.
"""

import base64
import binascii
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.sources.image_refs import inline, to_file
from recordmill.pipeline.sources.paths import Inside, inside
from recordmill.pipeline.sources.typing.faults import Fault, Faults

DATA_URL = "data:"
ImageBase = tuple[str, str]
"""The folder that paths of images are relative to: `SourceReader.image_root`, and a folder below it."""


def references(name: str, values: pa.Array, base: ImageBase, faults: Faults) -> pa.Array:
    """Makes references of a column of paths and `data:` URLs.

    Args:
        name: the column, for messages.
        values: Arrow `string` of shape [rows]; its bytes may be no UTF-8.
        base: what paths are relative to.
        faults: where the faults are added.

    Returns:
        Arrow `binary`: null where there is nothing, or nothing good.
    """
    made = list[bytes | None]()
    links = Inside(base[0])
    for row, value in enumerate(values.cast(pa.binary()).to_pylist()):
        result = None if value is None or not value.strip() else _reference(value, links, base[1])
        if isinstance(result, tuple):
            faults.setdefault(row, Fault(*result, name))
        made.append(result if isinstance(result, bytes) else None)
    return pa.array(made, pa.binary())


def inlined(values: pa.Array) -> pa.Array:
    """Makes references of a column of images' bytes, Arrow `binary` of shape [rows]; empty bytes are null."""
    return pa.array([inline(data) if data else None for data in values.to_pylist()], pa.binary())


def empty_images(values: pa.Array) -> pa.Array:
    """Makes references to an empty image where a column's bytes are empty, null elsewhere.

    It is refused when it is loaded, as a value that is missing: only then must an image's bytes be known.
    """
    return pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(inline(b"")), pa.scalar(None, pa.binary()))


Refusal = tuple[str, str]
"""A reason of `pipeline.sources.rejects`, and the message."""


def _reference(value: bytes, links: Inside, folder: str) -> bytes | Refusal:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "invalid_utf8", "the column's bytes are not UTF-8"
    if text[:5].lower() == DATA_URL:
        return _data_url(text)
    whole = f"{links.root}/"
    path = inside("", text.removeprefix(whole)) if text.startswith(whole) else inside(folder, text)
    if path is None:
        return "forbidden_path", "the path is absolute, is a URL, or leaves the source's folder"
    path = links.spelled(path)
    if not links.holds(path):
        return "forbidden_path", "the path is a link that leaves the source's folder"
    return to_file(path)


def _data_url(text: str) -> bytes | Refusal:
    """The bytes of a `data:` URL (RFC 2397)."""
    head, comma, payload = text[len(DATA_URL) :].partition(",")
    if not comma:
        return "unreadable", "the data: URL has no comma"
    if not head.lower().endswith(";base64"):
        return inline(unquote_to_bytes(payload))
    try:
        return inline(base64.b64decode("".join(payload.split()), validate=True))
    except (binascii.Error, ValueError):
        return "unreadable", "the data: URL is not base64"
