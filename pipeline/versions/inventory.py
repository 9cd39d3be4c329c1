"""Size and digest of every file of a version but its shards, which have their own entries, and the manifest.

>>> inventory("out/emoji/versions/20261120T120000Z-4f1c9a2e", shards=["emoji-train.tfrecord-00000-of-00001"])
... # doctest: +SKIP
{'dataset_info.json': {'bytes': 312, 'sha256': '…'}, …}
"""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE


def inventory(
    folder: str, shards: Collection[str], known: Mapping[str, dict[str, Any]] = MappingProxyType({})
) -> dict[str, dict[str, Any]]:
    """Maps each file's path in the folder, in the paths' order, to its `bytes` and its `sha256` in hex.

    Args:
        folder: the local folder of the files.
        shards: the names of the shards, which are left out.
        known: entries of files that need not be in the folder.

    Raises:
        OSError: a file cannot be read.
    """
    root, entries = Path(folder), dict(known)
    paths = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    for path in paths - {MANIFEST_FILE, *shards, *known}:
        with open(root / path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            entries[path] = {"bytes": file.tell(), "sha256": digest}
    return dict(sorted(entries.items()))
