"""Measures Recordmill against what a person would write instead; prints Markdown.

    python benchmarks/run.py                       all that takes minutes: images, text, stock, fixed
    python benchmarks/run.py images --runs 3
    python benchmarks/run.py text --documents real.jsonl
    python benchmarks/run.py memory-images memory-text

A cost for each image or document is marginal: many minus few, over the difference of their counts, so that imports and
other fixed costs are left out; those are measured on their own. Subjects take turns within a run; of all runs the
median is shown, and of ratios the median of the runs' ratios. Inputs are made once and kept in `bench-data/`.
"""

import argparse
import importlib.metadata
import os
import platform
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from inputs import Inputs
from measure import ROOT, Usage, measure

ANCHORS = Path(__file__).parent / "anchors"
PACKAGES = ("apache-beam", "tensorflow", "tensorflow-transform", "pyarrow", "numpy", "pillow")
IMPORTS = "import apache_beam, numpy, pyarrow, pydantic, rich, tensorflow, tensorflow_transform.beam, tfx_bsl.tfxio"

IMAGES = (200, 2000)
DOCUMENTS = (40_000, 200_000)
STOCK_DOCUMENTS = (20_000, 80_000)
MEMORY_IMAGES = (500, 4000)
MEMORY_TEXT = (200_000_000, 1_000_000_000)  # bytes

Command = list[str | Path]
Subject = Callable[[Path], Command]
"""Makes the command for an input, without the output folder, which comes last."""


def recordmill(spec: Path) -> Command:
    """A build in the default local mode."""
    return [sys.executable, "-m", "recordmill", "build", spec, "--quiet", "--output"]


def anchor(name: str) -> Subject:
    """A program of `anchors/`."""
    return lambda data: [sys.executable, ANCHORS / f"{name}.py", data]


def measure_fresh(command: Command, inputs: Inputs, memory: bool = False) -> Usage:
    """Measures a command that writes to a folder that is not there yet."""
    out = inputs.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    usage = measure([*command, out], memory)
    shutil.rmtree(out, ignore_errors=True)
    label = " ".join(Path(part).name for part in map(str, command[1:]))
    print(f"  {label}: {usage.cpu:.2f} s CPU, {usage.wall:.2f} s, {usage.peak / 1e6:.0f} MB", file=sys.stderr)
    return usage


def marginals(
    commands: dict[str, tuple[Command, Command]], units: int, runs: int, inputs: Inputs
) -> dict[str, list[Usage]]:
    """Measures each subject's few and many, in turns; gives the CPU and wall seconds of one unit, a run each."""
    found: dict[str, list[Usage]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, pair in commands.items():
            few, many = (measure_fresh(command, inputs) for command in pair)
            found[name].append(Usage((many.cpu - few.cpu) / units, (many.wall - few.wall) / units))
    return found


def table(title: str, header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Prints a Markdown table."""
    lines = [list(header), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    print(f"\n### {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines), flush=True)


def compare(title: str, unit: str, scale: float, found: dict[str, list[Usage]]) -> None:
    """Prints the first subject beside the others: CPU and wall of one unit, times `scale`, and the ratios."""
    (name, ours), *others = found.items()
    rows = []
    for other, theirs in others:
        for what in ("cpu", "wall"):
            a, b = ([getattr(usage, what) * scale for usage in usages] for usages in (ours, theirs))
            ratio = statistics.median(x / y for x, y in zip(a, b, strict=True))
            median_a, median_b = statistics.median(a), statistics.median(b)
            rows.append([what, f"{median_a:.4g}", other, f"{median_b:.4g}", f"{ratio:.2f}×", f"{1 / ratio:.2f}×"])
    table(f"{title} ({unit})", ("", name, "anchor", "its cost", "recordmill / anchor", "anchor / recordmill"), rows)


def images(inputs: Inputs, runs: int) -> None:
    """Photos decoded, resized and stored, against the bare tf.data loop."""
    few, many = (inputs.photos(inputs.scaled(count)) for count in IMAGES)
    spec_few, spec_many = (inputs.image_spec(folder) for folder in (few, many))
    loop = anchor("image_loop")
    commands = {"recordmill": (recordmill(spec_few), recordmill(spec_many)), "tf.data loop": (loop(few), loop(many))}
    units = inputs.scaled(IMAGES[1]) - inputs.scaled(IMAGES[0])
    compare("Images, marginal", "ms an image", 1e3, marginals(commands, units, runs, inputs))


def documents(title: str, name: str, subject: Subject, counts: tuple[int, int], inputs: Inputs, runs: int) -> None:
    """Documents to word ids, against one anchor."""
    few, many = (inputs.documents(count=inputs.scaled(count)) for count in counts)
    spec_few, spec_many = (inputs.text_spec(file) for file in (few, many))
    commands = {"recordmill": (recordmill(spec_few), recordmill(spec_many)), name: (subject(few), subject(many))}
    units = inputs.scaled(counts[1]) - inputs.scaled(counts[0])
    compare(title, "µs a document", 1e6, marginals(commands, units, runs, inputs))


def text(inputs: Inputs, runs: int) -> None:
    """Documents to word ids, against a loop written by hand."""
    documents("Text, marginal", "hand-written loop", anchor("text_loop"), DOCUMENTS, inputs, runs)


def stock(inputs: Inputs, runs: int) -> None:
    """Documents to word ids, against stock tf.Transform."""
    documents("Text against stock, marginal", "stock tf.Transform", anchor("text_stock"), STOCK_DOCUMENTS, inputs, runs)


def fixed(inputs: Inputs, runs: int) -> None:
    """The smallest builds, less the imports of the same frameworks."""
    commands: dict[str, Command] = {
        "imports": [sys.executable, "-c", IMPORTS],
        "one image and one category": recordmill(inputs.image_spec(inputs.photos(1))),
        "one text and one category": recordmill(inputs.text_spec(inputs.documents(count=1))),
    }
    found: dict[str, list[Usage]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            found[name].append(measure_fresh(command, inputs))
    imports = found["imports"]
    rows = []
    for name, usages in found.items():
        pairs = list(zip(usages, imports, strict=True))
        above = (
            [(u.cpu - i.cpu, u.wall - i.wall) for u, i in pairs]
            if name != "imports"
            else [(u.cpu, u.wall) for u in usages]
        )
        rows.append([name, *(f"{statistics.median(column):.2f}" for column in zip(*above, strict=True))])
    table("Fixed cost (s; builds above the imports)", ("", "CPU", "wall"), rows)


def slope(
    title: str, unit: str, sizes: tuple[int, int], commands: tuple[Command, Command], inputs: Inputs, runs: int
) -> None:
    """Prints two builds' peak memory and its growth for each further unit of input."""
    peaks: list[tuple[int, int]] = []
    for _ in range(runs):
        few, many = (measure_fresh(command, inputs, memory=True).peak for command in commands)
        peaks.append((few, many))
    few_mb, many_mb = (f"{statistics.median(column) / 1e6:.0f} MB" for column in zip(*peaks, strict=True))
    growth = statistics.median((many - few) / (sizes[1] - sizes[0]) for few, many in peaks)
    header = (f"{sizes[0]:,}", f"{sizes[1]:,}", f"bytes for each further {unit}")
    table(title, header, [(few_mb, many_mb, f"{growth:.3g}")])


def memory_images(inputs: Inputs, runs: int) -> None:
    """Peak memory of the process tree over the number of images."""
    few, many = map(inputs.scaled, MEMORY_IMAGES)
    specs = [recordmill(inputs.image_spec(inputs.photos(count))) for count in (few, many)]
    slope("Peak memory, images", "image", (few, many), (specs[0], specs[1]), inputs, runs)


def memory_text(inputs: Inputs, runs: int) -> None:
    """Peak memory of the process tree over the bytes of JSON Lines."""
    few, many = map(inputs.scaled, MEMORY_TEXT)
    specs = [recordmill(inputs.text_spec(inputs.documents(size=size))) for size in (few, many)]
    slope("Peak memory, text", "byte", (few, many), (specs[0], specs[1]), inputs, runs)


BENCHMARKS = {
    "images": images,
    "text": text,
    "stock": stock,
    "fixed": fixed,
    "memory-images": memory_images,
    "memory-text": memory_text,
}
DEFAULT = ("images", "text", "stock", "fixed")


def machine() -> str:
    """Says what this ran on: cores, processor, Python and the packages that do the work."""
    processor = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        named = [
            line.partition(":")[2].strip() for line in facts.read_text().splitlines() if line.startswith("model name")
        ]
        processor = named[0] if named else processor
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return f"{os.cpu_count()} cores of {processor}; Python {platform.python_version()}, {versions}."


def main() -> None:
    """Reads the command line and runs the benchmarks one after another."""
    parser = argparse.ArgumentParser(description="Measures Recordmill against its anchors; prints Markdown.")
    parser.add_argument(
        "names", nargs="*", metavar="BENCHMARK", help=f"{', '.join(BENCHMARKS)}; none: {', '.join(DEFAULT)}"
    )
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the inputs; 0.1: a quick look (default: 1)")
    parser.add_argument(
        "--documents", type=Path, help="JSON Lines with id, language and text; otherwise they are generated"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data", help="where inputs are kept")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown or arguments.runs < 1 or arguments.scale <= 0:
        parser.error(
            f"no such benchmark, or nothing to do: {' '.join(sys.argv[1:])}; there are {', '.join(BENCHMARKS)}"
        )
    inputs = Inputs(arguments.data, arguments.scale, arguments.documents)
    print(f"Medians of {arguments.runs} on {machine()}")
    for name in arguments.names or DEFAULT:
        BENCHMARKS[name](inputs, arguments.runs)


if __name__ == "__main__":
    main()
