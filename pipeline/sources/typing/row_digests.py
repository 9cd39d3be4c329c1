"""The default key of a row of typed columns: the digest of what is asked of it.

The columns stand in the order of their names, a value as its length in bytes and its bytes (`3:cat`), one that is
absent as `~`. The bytes are those of a text, a category, or the reference to an image (its path inside the source's
folder, or its own bytes); a number is its float64, an integer its int64, little-endian; a list is that of its values.
So the key does not depend on the file, nor on the types that the values had there, but does on which columns are asked.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.pipeline.dataset.placement import content_digest
from recordmill.pipeline.sources.typing.arrays import absent, as_lists, lengths

ABSENT = b"~"


def row_digests(columns: Mapping[str, pa.Array], unknown: Iterable[int]) -> pa.Array:
    """Gives the key of each row.

    Args:
        columns: by name, each of its column's Arrow type and of shape [rows]; at least one.
        unknown: the rows in which a value could not be read: they have no key.

    Returns:
        Arrow `binary`, shape [rows]: BLAKE2b, 16 bytes in hexadecimal, or null.
    """
    parts = [_parts(columns[name]) for name in sorted(columns)]
    rows = pc.binary_join_element_wise(*parts, b"").to_pylist()
    keys: list[bytes | None] = [content_digest(row) for row in rows]
    for row in unknown:
        keys[row] = None
    return pa.array(keys, pa.binary())


def _parts(values: pa.Array) -> pa.Array:
    """Each value's part of the key, as Arrow `binary`."""
    if pt.is_list(values.type):
        lists = as_lists(lengths(values), _parts(pc.list_flatten(values)), absent(values))
        values = pc.binary_join(lists, b"")
    content = _bytes(values)
    head = pc.binary_join_element_wise(pc.binary_length(content).cast(pa.string()).cast(pa.binary()), b":", b"")
    return pc.binary_join_element_wise(head, content, b"").fill_null(ABSENT)


def _bytes(values: pa.Array) -> pa.Array:
    if not pt.is_primitive(values.type):
        return values.cast(pa.binary())
    valid, numbers = values.buffers()
    return pa.Array.from_buffers(pa.binary(8), len(values), [valid, numbers], offset=values.offset).cast(pa.binary())
