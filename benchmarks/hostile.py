"""Builds from a folder of hostile pictures, or of hostile text; prints what came of it as Markdown.

    python benchmarks/hostile.py images FOLDER
    python benchmarks/hostile.py images FOLDER --isolated
    python benchmarks/hostile.py text FOLDER

Every file under FOLDER is a row of pictures. Of text, one build reads every file four times: whole, by lines, as CSV,
and as the value of a line of JSON. The peak memory is that of the process tree, beside a build of as many good ones.
Then the slowest pictures, one by one. A build runs with 12 GB of address space at most.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import ROOT, PeakMemory
from photos import write_photos

SPACE = 12 << 30
SECONDS = 1_800
GOOD = 900
SLOW = 5
IMAGES = """
name: hostile
source: {{format: jsonl, path: {rows}, images: {folder}}}
splits: {{train: 100}}
rejects: {{max_share: 1.0}}
features:
  image: {{kind: image, column: file, size: 64, normalize: dataset}}
"""
TEXT = """
name: hostile
source:
- {{format: text, path: '{folder}/**', document: file}}
- {{format: text, path: '{folder}/**', document: line}}
- {{format: csv, path: '{folder}/**', header: [text, b, c]}}
- {{format: jsonl, path: {rows}}}
splits: {{train: 100}}
rejects: {{max_share: 1.0}}
features:
  text: {{kind: text, vocabulary: 1000}}
"""
ALONE = """
import json, sys, time
import tensorflow as tf
from recordmill.pipeline.spec.features.image import Image
from recordmill.pipeline.build.images.transcode import decodable
from recordmill.transforms.tensorflow.image import ImageError, stored_image
options = Image(kind="image", size=64).model_dump()
graph = tf.function(lambda data: stored_image(data, options)[""], autograph=False,
                    input_signature=[tf.TensorSpec([], tf.string)])
found = []
for path in json.load(sys.stdin):
    for _ in range(2):  # the first loads what there is to load
        started = time.process_time()
        try:
            data = open(path, "rb").read()
            graph(tf.constant(decodable(data, options)))
        except (ImageError, tf.errors.InvalidArgumentError, OSError):
            pass
        took = time.process_time() - started
    found.append((took, path))
print(json.dumps(sorted(found, reverse=True)[:5]))
"""


@dataclass(frozen=True)
class Outcome:
    """What a build came to."""

    status: int
    seconds: float
    peak: int
    """Bytes of memory of the process tree."""
    said: str
    """Its last lines."""
    rows: dict[str, int]
    reasons: dict[str, int]


def build(spec: str, folder: Path, *options: str) -> Outcome:
    """Builds a spec into a new folder."""
    folder.mkdir()
    (folder / "dataset.yaml").write_text(spec)
    command = [
        sys.executable,
        "-m",
        "recordmill",
        "build",
        folder / "dataset.yaml",
        "-o",
        folder / "out",
        "-q",
        *options,
    ]
    started = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - our own command
        list(map(str, command)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE)),  # noqa: PLW1509 - no threads yet
    )
    sampler = PeakMemory(process.pid)
    sampler.start()
    said, _ = process.communicate(timeout=SECONDS)
    peak, seconds = sampler.stop(), time.perf_counter() - started
    manifests = list((folder / "out/versions").glob("*/dataset.json"))
    manifest = json.loads(manifests[0].read_text()) if manifests else {"rows": {}, "rejects": {}}
    return Outcome(
        process.returncode, seconds, peak, said[-500:], manifest["rows"], manifest["rejects"].get("by_reason", {})
    )


def picture_spec(files: Sequence[Path], folder: Path, name: str) -> str:
    """Lists pictures in a file of rows; gives the spec that builds of it."""
    paths = [str(file.relative_to(folder)) for file in files]
    rows = Path(tempfile.mkdtemp(prefix=f"{name}-")) / "rows.jsonl"
    rows.write_text("".join(json.dumps({"file": path}) + "\n" for path in paths))
    return IMAGES.format(rows=rows, folder=folder)


def images(folder: Path, scratch: Path, options: Sequence[str]) -> dict[str, Outcome]:
    """Builds of the hostile pictures, and of good ones."""
    write_photos(scratch / "photos", GOOD)
    good = sorted((scratch / "photos").rglob("*.jpg"))
    return {
        "good pictures": build(picture_spec(good, scratch / "photos", "good"), scratch / "good", *options),
        "hostile pictures": build(picture_spec(files_of(folder), folder, "hostile"), scratch / "hostile", *options),
    }


def files_of(folder: Path) -> list[Path]:
    """All files below a folder, in their order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def slowest(files: Sequence[Path]) -> list[tuple[float, str]]:
    """The CPU seconds that the slowest pictures take alone, and their paths."""
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", ALONE],
        input=json.dumps(list(map(str, files))),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return [(seconds, path) for seconds, path in json.loads(done.stdout)]


def text(folder: Path, scratch: Path, options: Sequence[str]) -> dict[str, Outcome]:
    """Builds of hostile text, and of good text in as many files."""
    files = files_of(folder)
    (scratch / "texts").mkdir()
    for number in range(len(files)):
        (scratch / "texts" / f"{number}.txt").write_text(f"A good text of number {number}.\n" * 20)
    return {name: _text(where, scratch / name) for name, where in (("good", scratch / "texts"), ("hostile", folder))}


def _text(folder: Path, scratch: Path) -> Outcome:
    rows = scratch.with_suffix(".jsonl")
    rows.write_bytes(b"".join(map(_line, files_of(folder))))
    return build(TEXT.format(folder=folder, rows=rows), scratch)


def _line(file: Path) -> bytes:
    """A file as the value in a line of JSON: JSON as it is, its line breaks made spaces, all else as a string."""
    data = file.read_bytes()
    if file.suffix != ".json":
        data = json.dumps(data.decode(errors="replace")).encode()
    return b'{"text": ' + data.translate(bytes.maketrans(b"\r\n", b"  ")) + b"}\n"


def show(outcomes: dict[str, Outcome]) -> None:
    """Prints the table."""
    print("| | exit | read | accepted | rejected | peak memory | wall |\n| --- | --- | --- | --- | --- | --- | --- |")
    for name, one in outcomes.items():
        counts = [one.rows.get(key, "") for key in ("read", "written", "rejected")]
        cells = [name, one.status, *counts, f"{one.peak / 1e6:,.0f} MB", f"{one.seconds:.0f} s"]
        print(f"| {' | '.join(map(str, cells))} |")
    for name, one in outcomes.items():
        if one.reasons or one.said:
            print(f"\n{name}: {', '.join(f'{reason} {count}' for reason, count in one.reasons.items())}\n{one.said}")


def main() -> None:
    """Reads the arguments and measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["images", "text"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--isolated", action="store_true")
    arguments = parser.parse_args()
    options = ["--isolated"] if arguments.isolated else []
    folder = arguments.folder.resolve()
    with tempfile.TemporaryDirectory(prefix="hostile-") as scratch:
        show({"images": images, "text": text}[arguments.what](folder, Path(scratch), options))
    if arguments.what == "images":
        for seconds, path in slowest(files_of(folder)):
            print(f"{seconds:.2f} s of CPU alone: {Path(path).relative_to(folder)}")


if __name__ == "__main__":
    main()
