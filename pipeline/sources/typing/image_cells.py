"""Pictures in a column of a source: from paths, `data:` URLs and bytes to references (`pipeline.sources.image_refs`).

A path is relative to the folder of the file that names it, or to the source's `images` folder where that is given. A
path that is absolute, or a URL, is taken where it lies inside the source's folder of pictures. What a row names is not
trusted: a symbolic link that leads out of that folder is refused, which is followed where the folder itself is listed.
"""

import base64
import binascii
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.sources.image_refs import inline, to_file
from recordmill.pipeline.sources.paths import Inside, inside
from recordmill.pipeline.sources.typing.checks import Fault, Faults

DATA_URL = "data:"


def references(name: str, values: pa.Array, root: str, folder: str, faults: Faults) -> pa.Array:
    """Makes references of a column of paths and `data:` URLs.

    Args:
        name: the column, for messages.
        values: Arrow `string` of shape [rows], or lists of them; its bytes may be no UTF-8.
        root: the folder of the source's pictures, as `Source.image_root` gives it.
        folder: what a path is relative to, itself relative to `root`.
        faults: where the faults found are added.

    Returns:
        Arrow `binary`, or lists of them: null where there is nothing, or nothing good.
    """
    if not pa.types.is_list(values.type):
        return _references(name, values.cast(pa.binary()).to_pylist(), range(len(values)), root, folder, faults)
    rows = pc.list_parent_indices(values).to_pylist()
    flat = _references(name, pc.list_flatten(values).cast(pa.binary()).to_pylist(), rows, root, folder, faults)
    return _with_values(values, flat)


def inlined(values: pa.Array) -> pa.Array:
    """Makes references of a column of pictures' bytes, Arrow `binary`, or lists of them; empty bytes are null."""
    if pa.types.is_list(values.type):
        return _with_values(values, inlined(pc.list_flatten(values)))
    return pa.array([inline(data) if data else None for data in values.to_pylist()], pa.binary())


def _with_values(lists: pa.Array, flat: pa.Array) -> pa.Array:
    """The lists with other values, as many as before."""
    lengths = pc.list_value_length(lists)
    ends = pc.cumulative_sum(lengths.fill_null(0)).to_pylist()
    offsets = [0, *ends]
    for row, length in enumerate(lengths.to_pylist()):
        if length is None:
            offsets[row] = None  # type: ignore[call-overload]  # how Arrow is told of a null list
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _references(
    name: str, values: Sequence[bytes | None], rows: Sequence[int], root: str, folder: str, faults: Faults
) -> pa.Array:
    found: list[bytes | None] = []
    links = Inside(root)
    for row, value in zip(rows, values, strict=True):
        one = None if value is None or not value.strip() else _reference(value, links, folder)
        if isinstance(one, Fault):
            faults.setdefault(row, Fault(one.reason, one.message, name))
        found.append(one if isinstance(one, bytes) else None)
    return pa.array(found, pa.binary())


def _reference(value: bytes, links: Inside, folder: str) -> bytes | Fault:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return Fault("invalid_utf8", "the column's bytes are not UTF-8")
    if text[:5].lower() == DATA_URL:
        return _data_url(text)
    whole = f"{links.root}/"
    path = inside("", text.removeprefix(whole)) if text.startswith(whole) else inside(folder, text)
    if path is None:
        return Fault("forbidden_path", "the path is absolute, is a URL, or leaves the source's folder")
    if not links.holds(path):
        return Fault("forbidden_path", "the path is a link that leaves the source's folder")
    return to_file(path)


def _data_url(text: str) -> bytes | Fault:
    """The bytes of a `data:` URL (RFC 2397)."""
    head, comma, payload = text[len(DATA_URL) :].partition(",")
    if not comma:
        return Fault("unreadable", "the data: URL has no comma")
    if not head.lower().endswith(";base64"):
        return inline(unquote_to_bytes(payload))
    try:
        return inline(base64.b64decode("".join(payload.split()), validate=True))
    except (binascii.Error, ValueError):
        return Fault("unreadable", "the data: URL is not base64")
