"""Values compressed in memory.

The names, sizes and times of ten million files take 2 GB as Python's objects, and 200 MB so.

>>> unpack(pack(["cat/1.jpg", "cat/2.jpg"]))
['cat/1.jpg', 'cat/2.jpg']
"""

import pickle
import zlib
from typing import Any

LEVEL = 1  # 18 bytes a file; zlib's best level saves one more and takes twice as long


def pack(value: object) -> bytes:
    """Pickles and compresses a value."""
    return zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), LEVEL)


def packed_bytes(value: object) -> int:
    """Gives about the bytes of a value before they are compressed."""
    return len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def unpack(packed: bytes) -> Any:
    """Gives the value of bytes that this build packed; never of bytes from elsewhere."""
    return pickle.loads(zlib.decompress(packed))  # noqa: S301
