"""Measures the space of nightly versions that grow 1 % a day.

    python benchmarks/nightly_space.py FOLDER BYTES NIGHTS

All builds run in this process, so the packages are imported once. The rows are few and large, and do not compress. The
blocks of files and folders count, hard links once.
"""

import base64
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import ROOT

sys.path.insert(0, str(ROOT))

from recordmill import build, load_spec  # noqa: E402
from recordmill.pipeline.versions.listing import list_versions  # noqa: E402

SPANS = 100
ROW_BYTES = 30_000
SPEC = """
name: nightly
source: {{format: jsonl, path: '{rows}/{{span}}/*.jsonl'}}
key: id
gate: false
features: {{blob: {{kind: raw}}, text: {{kind: text, vocabulary: 5000}}, price: {{kind: number}}}}
"""


def write_span(rows: Path, span: int, bytes_: int) -> None:
    """Writes the rows of a day."""
    (rows / f"day-{span:04d}").mkdir(parents=True)
    draw = random.Random(span)
    with open(rows / f"day-{span:04d}" / "rows.jsonl", "w") as file:
        for row in range(max(1, bytes_ // ROW_BYTES)):
            blob = base64.b64encode(draw.randbytes(ROW_BYTES * 3 // 4)).decode()
            text = " ".join(f"w{int(draw.expovariate(0.002))}" for _ in range(40))
            file.write(json.dumps({"id": f"{span}-{row}", "blob": blob, "text": text, "price": draw.random()}) + "\n")


def space(folder: str) -> int:
    """Adds up the blocks of a folder, in bytes; of files with several names once."""
    states = [os.lstat(folder)]
    for parent, folders, files in os.walk(folder):
        states += [os.lstat(os.path.join(parent, name)) for name in (*folders, *files)]
    blocks = {(state.st_dev, state.st_ino): state.st_blocks for state in states}
    return 512 * sum(blocks.values())


def nights(folder: Path, output: str, bytes_: int, count: int) -> Iterator[dict[str, str]]:
    """Builds each night, and measures at the end."""
    (folder / "dataset.yaml").write_text(SPEC.format(rows=folder / "rows"))
    spec = load_spec(str(folder / "dataset.yaml"))
    for span in range(SPANS):
        write_span(folder / "rows", span, bytes_ // SPANS)
    for night in range(count):
        if night:
            write_span(folder / "rows", SPANS + night, bytes_ // SPANS)
        last = build(spec, output).manifest
    total, one = space(output), space(f"{output}/versions/{last.version}")
    versions = [version.manifest for version in list_versions(output)]
    assert len(versions) == count
    shards = sum(shard.bytes for split in last.splits.values() for shard in split.shards)
    of = f"the last of {one / 1e6:,.0f} MB, {shards / 1e6:,.0f} MB of them shards in {len(last.spans)} spans"
    yield {"what": f"space of {count} nightly versions", "figure": f"{total / one:.2f}× that of the last", "of": of}
    more = (total - one) / (count - 1)
    yield {"what": "space of each version for itself alone", "figure": f"{more / 1e6:.2f} MB", "of": of}


def main() -> None:
    """Runs; the last line that it prints is JSON."""
    folder, bytes_, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(json.dumps(list(nights(folder, str(folder / "out"), bytes_, count))))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
