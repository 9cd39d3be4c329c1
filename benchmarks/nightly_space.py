"""Measures the space of nightly versions that grow 1 % a day, on a disk or in an object store.

    python benchmarks/nightly_space.py FOLDER BYTES NIGHTS local|s3

All builds run in this process, so the packages are imported once. The rows are few and large, and do not compress. On a
disk the blocks of files and folders count, of files with several names once; in the store, which is the emulator of the
tests, the bytes of objects.
"""

import base64
import importlib
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from measure import ROOT

sys.path.insert(0, str(ROOT))

from recordmill import build, load_spec  # noqa: E402
from recordmill.pipeline.dataset.manifest import Manifest  # noqa: E402
from recordmill.pipeline.versions.files import referenced_files  # noqa: E402
from recordmill.pipeline.versions.listing import list_versions  # noqa: E402
from recordmill.pipeline.versions.stores.open_store import is_local, open_store  # noqa: E402

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


def sizes(output: str, last: Manifest) -> tuple[int, int]:
    """Gives the bytes of an output, and of all that its last version needs."""
    store = open_store(output)
    own = f"versions/{last.version}"
    if is_local(output):
        return space(output), space(f"{output}/{own}")
    objects = store.sizes("")
    needed = {name for name in objects if name.startswith(f"{own}/")} | set(referenced_files(last))
    return sum(objects.values()), sum(objects[name] for name in needed)


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
    total, one = sizes(output, last)
    versions = [version.manifest for version in list_versions(output)]
    assert len(versions) == count
    shards = sum(shard.bytes for split in last.splits.values() for shard in split.shards)
    where = "on a disk" if is_local(output) else "in an object store"
    of = f"{where}, the last of {one / 1e6:,.0f} MB, {shards / 1e6:,.0f} MB of them shards in {len(last.spans)} spans"
    yield {"what": f"space of {count} nightly versions", "figure": f"{total / one:.2f}× that of the last", "of": of}
    more = (total - one) / (count - 1)
    yield {"what": "space of each version for itself alone", "figure": f"{more / 1e6:.2f} MB", "of": of}


def main() -> None:
    """Runs one of the two; the last line that it prints is JSON."""
    folder, bytes_, count, store = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    place: AbstractContextManager[str] = nullcontext(str(folder / "out"))
    if store == "s3":
        place = importlib.import_module("tests.emulators").s3()
    with place as output:
        print(json.dumps(list(nights(folder, output, bytes_, count))))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
