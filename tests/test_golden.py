"""A golden dataset of every kind: fails when a byte of a shard, an index, a vocabulary or a statistic changes.

If the bytes should change, say why in the changelog and write the new golden file:
`.venv/bin/python -m tests.test_golden`. Bytes may also change with the packages in requirements.lock, and with the
architecture of the CPU.
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.versions.publishing import Published
from tests.conftest import build_every_kind

PATTERNS = ("kinds-*", "transform_fn/assets/*", "tokenizers/*", "*.json", "*.txt")
OF_A_BUILD = {"dataset.json", "croissant.json"}
"""The manifest holds the time of publishing and the inputs' times of change; the description lists the other files."""
GOLDEN = Path(__file__).with_name("golden.json")


def fingerprint(published: Published) -> dict[str, Any]:
    """The digests of what a dataset holds."""
    version = Path(published.folder)
    files = [path for pattern in PATTERNS for path in version.glob(pattern)]
    return {
        "files": {
            str(path.relative_to(version)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(files)
            if path.name not in OF_A_BUILD
        },
        "features": published.manifest.features,
        "statistics": published.manifest.statistics,
        "rows": published.manifest.rows,
    }


@pytest.mark.slow
def test_golden(every_kind: tuple[Path, Published]) -> None:
    assert fingerprint(every_kind[1]) == json.loads(GOLDEN.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        GOLDEN.write_text(json.dumps(fingerprint(build_every_kind(Path(scratch))), indent=1) + "\n")
