"""Size and digest of every file of a version but its shards, which have their own entries, and the manifest.

>>> inventory("out/emoji/versions/20261120T120000Z-4f1c9a2e", shards=["emoji-train.tfrecord-00000-of-00001"])
... # doctest: +SKIP
{'dataset_info.json': {'bytes': 312, 'sha256': '…'}, …}
"""

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE


def inventory(folder: str, shards: Collection[str]) -> dict[str, dict[str, Any]]:
    """Maps each file's path in the folder, in the paths' order, to its `bytes` and its `sha256` in hex.

    Raises:
        OSError: a file cannot be read.
    """
    root, others = Path(folder), {MANIFEST_FILE, *shards}
    paths = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    entries = {}
    for path in [path for path in paths if path not in others]:
        with open(root / path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            entries[path] = {"bytes": file.tell(), "sha256": digest}
    return entries
