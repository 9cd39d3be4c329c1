"""Measures Recordmill against what a person would write instead; prints Markdown.

    python benchmarks/run.py                       all that takes minutes: images, text, stock, fixed
    python benchmarks/run.py images --runs 3
    python benchmarks/run.py images-profiles             photos with colour profiles as people have them
    python benchmarks/run.py masks                 photos beside masks, and the photos alone
    python benchmarks/run.py text --documents real.jsonl
    python benchmarks/run.py memory-images memory-text
    python benchmarks/run.py images text --against ../recordmill-before
    python benchmarks/run.py rebuild --runs 3      a night of 1 % more rows, thirty in space, a check, a diff
    python benchmarks/run.py scale                 the driver and the reader at n, 2n and 4n of synthetic inputs

A cost for each image or document is marginal: many minus few, over the difference of their counts, which leaves out
imports and other fixed costs; those are measured on their own. Subjects take turns within a run. Every figure is the
median of the runs, every ratio the median of the runs' ratios. Inputs are generated once and kept in `bench-data/`.
`--against` measures another checkout of Recordmill, with its own `.venv`, beside this one.
"""

import argparse
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import adopt as adopting
import rebuild as rebuilding
import scale as scaling
from inputs import Inputs
from measure import ROOT, Usage, machine, measure, table

ANCHORS = Path(__file__).parent / "anchors"
PACKAGES = ("apache-beam", "tensorflow", "tensorflow-transform", "pyarrow", "numpy", "pillow")
IMPORTS = "import apache_beam, numpy, pyarrow, pydantic, rich, tensorflow, tensorflow_transform.beam, tfx_bsl.tfxio"

IMAGES = (2000, 8000)
DOCUMENTS = (40_000, 200_000)
STOCK_DOCUMENTS = (20_000, 80_000)
MEMORY_IMAGES = (500, 4000)
MEMORY_TEXT = (200_000_000, 1_000_000_000)  # bytes

Command = list[str | Path]
Subject = Callable[[Path], Command]
"""Makes the command for an input, without the output folder, which comes last."""


@dataclass(frozen=True)
class Setup:
    """The inputs, the number of runs, and another checkout of Recordmill to measure beside this one."""

    inputs: Inputs
    runs: int
    against: Path | None = None

    def builders(self) -> dict[str, Subject]:
        """Gives the checkouts that are measured, this one first."""
        others = {} if self.against is None else {"before": checkout(self.against)}
        return {"recordmill": recordmill, **others}


def recordmill(spec: Path) -> Command:
    """Builds with this checkout in the default local mode."""
    return [sys.executable, "-m", "recordmill", "build", spec, "--quiet", "--output"]


def checkout(folder: Path) -> Subject:
    """Builds with the command of another checkout's environment."""
    command = folder.absolute() / ".venv/bin/recordmill"
    return lambda spec: [command, "build", spec, "--quiet", "--output"]


def anchor(name: str) -> Subject:
    """Runs a program of `anchors/`."""
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


def images(setup: Setup, kind: str = "photos") -> None:
    """Compares photos that are decoded, resized and stored with a bare tf.data loop."""
    few, many = (setup.inputs.photos(setup.inputs.scaled(count), kind) for count in IMAGES)
    loop = anchor("image_loop")
    commands = {
        name: (build(setup.inputs.image_spec(few)), build(setup.inputs.image_spec(many)))
        for name, build in setup.builders().items()
    }
    commands["tf.data loop"] = (loop(few), loop(many))
    units = setup.inputs.scaled(IMAGES[1]) - setup.inputs.scaled(IMAGES[0])
    compare("Images, marginal", "ms an image", 1e3, marginals(commands, units, setup.runs, setup.inputs))


def masks(setup: Setup) -> None:
    """Compares photos beside masks with the photos alone."""
    inputs = setup.inputs
    specs = [inputs.masked_specs(inputs.masked(inputs.scaled(count))) for count in IMAGES]
    (few, few_alone), (many, many_alone) = specs
    commands = {
        "photos and masks": (recordmill(few), recordmill(many)),
        "photos alone": (recordmill(few_alone), recordmill(many_alone)),
    }
    units = inputs.scaled(IMAGES[1]) - inputs.scaled(IMAGES[0])
    compare("Masks, marginal", "ms an image", 1e3, marginals(commands, units, setup.runs, inputs))


def documents(title: str, name: str, subject: Subject, counts: tuple[int, int], setup: Setup) -> None:
    """Compares documents to word ids with one anchor."""
    inputs = setup.inputs
    few, many = (inputs.documents(count=inputs.scaled(count)) for count in counts)
    commands = {
        builder: (build(inputs.text_spec(few)), build(inputs.text_spec(many)))
        for builder, build in setup.builders().items()
    }
    commands[name] = (subject(few), subject(many))
    units = inputs.scaled(counts[1]) - inputs.scaled(counts[0])
    compare(title, "µs a document", 1e6, marginals(commands, units, setup.runs, inputs))


def text(setup: Setup) -> None:
    """Compares documents to word ids with a loop written by hand."""
    documents("Text, marginal", "hand-written loop", anchor("text_loop"), DOCUMENTS, setup)


def tokens(setup: Setup) -> None:
    """Compares documents to a model's own ids with the package `tokenizers` alone."""
    inputs = setup.inputs
    few, many = (inputs.documents(count=inputs.scaled(count)) for count in STOCK_DOCUMENTS)
    model = inputs.tokenizer(many)
    commands = {
        builder: (build(inputs.tokens_spec(few)), build(inputs.tokens_spec(many)))
        for builder, build in setup.builders().items()
    }
    bare: Command = [sys.executable, ANCHORS / "tokens.py"]
    commands["encode_batch_fast"] = ([*bare, few, model], [*bare, many, model])
    units = inputs.scaled(STOCK_DOCUMENTS[1]) - inputs.scaled(STOCK_DOCUMENTS[0])
    compare("A model's own ids, marginal", "µs a document", 1e6, marginals(commands, units, setup.runs, inputs))


def stock(setup: Setup) -> None:
    """Compares documents to word ids with stock tf.Transform."""
    documents("Text against stock, marginal", "stock tf.Transform", anchor("text_stock"), STOCK_DOCUMENTS, setup)


def fixed(setup: Setup) -> None:
    """Measures the smallest builds, less the imports of the same frameworks."""
    specs = {
        "one image and one category": setup.inputs.image_spec(setup.inputs.photos(1)),
        "one text and one category": setup.inputs.text_spec(setup.inputs.documents(count=1)),
    }
    commands: dict[str, Command] = {"imports": [sys.executable, "-c", IMPORTS]}
    commands |= {
        f"{what}, {name}": build(spec) for what, spec in specs.items() for name, build in setup.builders().items()
    }
    usages: dict[str, list[Usage]] = {name: [] for name in commands}
    for _ in range(setup.runs):
        for name, command in commands.items():
            usages[name].append(measure_fresh(command, setup.inputs))
    imports = usages.pop("imports")
    rows = [("imports", *medians((usage.cpu, usage.wall) for usage in imports))]
    for name, measured in usages.items():
        above = ((u.cpu - i.cpu, u.wall - i.wall) for u, i in zip(measured, imports, strict=True))
        rows.append((name, *medians(above)))
    table("Fixed cost (s; builds above the imports)", ("", "CPU", "wall"), rows)


def medians(pairs: Iterable[tuple[float, float]]) -> tuple[str, str]:
    """Formats the medians of CPU and wall seconds."""
    cpu, wall = (statistics.median(column) for column in zip(*pairs, strict=True))
    return f"{cpu:.2f}", f"{wall:.2f}"


def slope(title: str, unit: str, sizes: tuple[int, int], specs: tuple[Path, Path], setup: Setup) -> None:
    """Prints two builds' peak memory and its growth for each further unit of input."""
    rows = []
    for name, build in setup.builders().items():
        runs = [[measure_fresh(build(spec), setup.inputs, memory=True) for spec in specs] for _ in range(setup.runs)]
        for what in ("peak", "anonymous"):
            peaks = [[getattr(usage, what) for usage in pair] for pair in runs]
            few, many = (f"{statistics.median(column) / 1e6:.0f} MB" for column in zip(*peaks, strict=True))
            growth = statistics.median((many - few) / (sizes[1] - sizes[0]) for few, many in peaks)
            rows.append((f"{name}, {what}", few, many, f"{growth:.3g}"))
    table(title, ("", f"{sizes[0]:,}", f"{sizes[1]:,}", f"bytes for each further {unit}"), rows)


def memory(setup: Setup, kind: str) -> None:
    """Measures the peak memory of the process tree over the number of images, or the bytes of JSON Lines."""
    inputs = setup.inputs
    few, many = map(inputs.scaled, MEMORY_IMAGES if kind == "image" else MEMORY_TEXT)
    specs = [
        inputs.image_spec(inputs.photos(n)) if kind == "image" else inputs.text_spec(inputs.documents(size=n))
        for n in (few, many)
    ]
    slope(f"Peak memory, {kind}s", kind, (few, many), (specs[0], specs[1]), setup)


def scale(setup: Setup) -> None:
    """Measures how the driver and the reader scale."""
    rows = scaling.rows(setup.inputs.scaled)
    table("Scale (each in its own process; memory above what was there before)", scaling.HEADER, rows)


def rebuild(setup: Setup) -> None:
    """Measures what a night costs."""
    table("Rebuilds", rebuilding.HEADER, rebuilding.rows(setup.inputs.scaled, setup.inputs.folder, setup.runs))


BENCHMARKS: dict[str, Callable[[Setup], None]] = {
    "images": images,
    "images-profiles": partial(images, kind="profiles"),
    "masks": masks,
    "text": text,
    "tokens": tokens,
    "stock": stock,
    "fixed": fixed,
    "memory-images": partial(memory, kind="image"),
    "memory-text": partial(memory, kind="byte"),
    "scale": scale,
    "adopt": lambda setup: adopting.adopt(setup.inputs.folder, setup.runs),
    "rebuild": rebuild,
}
DEFAULT = ("images", "text", "stock", "fixed")


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
    parser.add_argument("--against", type=Path, help="another checkout of Recordmill, with its .venv")
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data", help="where inputs are kept")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown or arguments.runs < 1 or arguments.scale <= 0:
        parser.error(
            f"no such benchmark, or nothing to do: {' '.join(sys.argv[1:])}; there are {', '.join(BENCHMARKS)}"
        )
    inputs = Inputs(arguments.data, arguments.scale, arguments.documents)
    setup = Setup(inputs, arguments.runs, arguments.against)
    print(f"Medians of {arguments.runs} on {machine(PACKAGES)}")
    for name in arguments.names or DEFAULT:
        BENCHMARKS[name](setup)


if __name__ == "__main__":
    main()
