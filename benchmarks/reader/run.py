"""Measures the training input beside its peers; prints Markdown.

    python benchmarks/reader/run.py      images, text, remote, memory and cores
    python benchmarks/reader/run.py images --dtype float32 --runs 5
    python benchmarks/reader/run.py text --only tutorial,recordmill_padded

It runs in the environment that `requirements.lock` makes. A pipeline is a module of `images/` or `text/`, or one of
`ours.py`. Each run is a process (`worker.py`), and pipelines take turns. A figure is the median of the
runs, a ratio the median of the runs' ratios. Data is made once and kept.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from measure import machine, table  # noqa: E402

PACKAGES = (
    "tensorflow tensorflow-datasets grain array-record mosaicml-streaming litdata torch "
    "torchvision nvidia-dali-cuda120 spdl numpy simplejpeg opencv-python-headless pillow"
).split()
RUN_SECONDS = 180
"""After so long a run has hung."""
MEMORY_SECONDS = 40
"""In which 64 workers start on two cores."""
TAIL = 1500  # bytes of a failed run's output are shown
WIRE = ("--delay=0.03", "--rate=125e6")
"""30 ms before each answer, and 1 Gbit/s of all together."""

IMAGES = (
    "recordmill_numpy recordmill_numpy_threads recordmill_adopted_numpy recordmill_adopted_numpy_threads "
    "recordmill_tf_data recordmill_tf_data_threads tfds tf_data tf_data_numpy grain_processes streaming litdata "
    "tfrecord_index dali spdl spdl_numpy"
).split()
FORMS = "padded bucketed packed packing".split()
"""Texts packed by the build, or while reading."""
TEXT = [f"recordmill_{form}{face}{mode}" for form in FORMS for face in ("", "_tf_data") for mode in ("", "_threads")]
TEXT += ["tutorial", *(f"tf_data_{form}" for form in FORMS)]
REMOTE = "recordmill_numpy streaming litdata".split()
CORES = "recordmill_numpy recordmill_tf_data tf_data_numpy tf_data grain_processes".split()
"""The pipelines that are measured with a thread or process a core."""
RECORDMILL_WORKERS = ("recordmill_numpy", "recordmill_tf_data")
BATCH_SIZES = {"images": 32, "text": 64}
PACKED_ROWS = 32
OURS = "recordmill"
ANCHOR = "tutorial"

Run = dict[str, Any]
"""What `worker.py` prints."""


@dataclass(frozen=True)
class Case:
    """One line of a table: a pipeline with its settings."""

    task: str
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    label: str = ""

    @property
    def title(self) -> str:
        """The line's name."""
        return self.label or self.name

    @property
    def batch_size(self) -> int:
        """Rows of a batch; of packed rows fewer, since each is long."""
        return PACKED_ROWS if "packed" in self.name else BATCH_SIZES[self.task]


def case_of(task: str, name: str, settings: dict[str, Any]) -> Case:
    """Returns a pipeline's case. Our input chooses how it reads, unless the name ends with `_threads`."""
    pipeline = name.removesuffix("_threads")
    return Case(task, pipeline, settings if pipeline == name else {"processes": 0, **settings}, name)


@dataclass(frozen=True)
class Bench:
    """Where the data lies and how it is measured."""

    data: Path
    runs: int
    seconds: float
    only: frozenset[str]
    dtypes: Sequence[str]

    def cases(self, task: str, names: Iterable[str], **settings: Any) -> list[Case]:
        """Gives a case for each pipeline that was asked for."""
        return [case_of(task, name, settings) for name in names if not self.only or name in self.only]

    def measure(self, cases: Sequence[Case], seconds: float) -> dict[str, list[Run]]:
        """Measures the cases in turns; a case that fails is told and left out."""
        found: dict[str, list[Run]] = {case.title: [] for case in cases}
        for seed in range(self.runs):
            for case in cases:
                if case.title not in found:
                    continue
                try:
                    found[case.title].append(self.run_once(case, seed, seconds))
                except RuntimeError as failure:
                    print(f"{case.title} is left out: {failure}", file=sys.stderr)
                    del found[case.title]
        return found

    def run_once(self, case: Case, seed: int, seconds: float) -> Run:
        """Runs a pipeline in a process of its own and ends all that it leaves behind."""
        settings = {"batch_size": case.batch_size, "seed": seed, **case.settings}
        data = self.data / case.task
        worker = [sys.executable, HERE / "worker.py", case.task, case.name, data, json.dumps(settings)]
        command = [*map(str, worker), "--seconds", str(seconds), "--warm-up", str(min(seconds, 4))]
        pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=environment(), start_new_session=True, text=True, **pipe)
        try:
            output = process.communicate(timeout=RUN_SECONDS)[0]
        except subprocess.TimeoutExpired:
            output = f"no end after {RUN_SECONDS} s"
        finally:
            end_group(process)
        lines = [line for line in output.splitlines() if line.startswith('{"first_batch"')]
        if not lines:
            raise RuntimeError(output[-TAIL:])
        run: Run = json.loads(lines[-1])
        print(f"  {case.title}: {json.dumps(run)}", file=sys.stderr, flush=True)
        return run


def end_group(process: subprocess.Popen[str]) -> None:
    """Ends a process' whole group: worker processes outlive a parent that leaves at once."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def environment() -> dict[str, str]:
    """The environment of a pipeline: our packages are imported from this folder, and no library looks for a GPU."""
    paths = os.pathsep.join(map(str, (ROOT, HERE.parent)))
    return os.environ | {"PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}


def prepare(task: str, data: Path) -> None:
    """Makes a task's data if it is missing."""
    programs: list[tuple[str, ...]] = [("prepare.py", task, str(data / task))]
    if task == "images":
        programs.append(("torch_formats.py", str(data / task)))
    for program, *arguments in programs:
        command = [sys.executable, str(HERE / program), *arguments]
        subprocess.run(command, env=environment(), check=True, stdout=sys.stderr)


def rates(runs: Iterable[Run]) -> list[float]:
    """Pictures or tokens a second of each run."""
    return [run["units"] / run["seconds"] for run in runs]


def ratio(runs: Sequence[Run], others: Sequence[Run]) -> float:
    """How many times as fast: the median of the runs' ratios."""
    return median(a / b for a, b in zip(rates(runs), rates(others), strict=True))


def compare(title: str, found: dict[str, list[Run]], anchor: str, unit: str, text: bool) -> None:
    """Prints all pipelines, if there are any, the fastest first, beside the fastest peer and the anchor."""
    if not found:
        return
    order = sorted(found, key=lambda name: -median(rates(found[name])))
    peers = [name for name in order if OURS not in name]
    others = [name for name in dict.fromkeys((*peers[:1], anchor)) if name in found]
    header = ["", f"{unit}s/s", *(f"× {name}" for name in others), f"CPU {'ns' if text else 'ms'} a {unit}"]
    rows = []
    for name in order:
        runs = found[name]
        cost = median(run["cpu"] / run["units"] for run in runs) * (1e9 if text else 1e3)
        row = [name, f"{median(rates(runs)):,.0f}", *(f"{ratio(runs, found[other]):.2f}" for other in others)]
        row += [f"{cost:.3g}", f"{median(run['first_batch'] for run in runs):.2f} s"]
        row += [f"{median(run['memory'] for run in runs) / 1e6:,.0f} MB"]
        rows.append(row + ([f"{median(run['padding'] for run in runs):.0%}"] if text else []))
    table(title, [*header, "first batch", "memory", *(["padding"] if text else [])], rows)


def images(bench: Bench) -> None:
    """JPEGs to random resized crops, uint8 and float32."""
    for dtype in bench.dtypes:
        found = bench.measure(bench.cases("images", IMAGES, dtype=dtype), bench.seconds)
        compare(f"Images of 256×256, {dtype}", found, "tfds", "image", text=False)


def text(bench: Bench) -> None:
    """Documents to batches of ids; padding is not counted."""
    found = bench.measure(bench.cases("text", TEXT), bench.seconds)
    for form in FORMS:
        some = {name: runs for name, runs in found.items() if form in name or (form, name) == ("padded", ANCHOR)}
        compare(f"Text, {form}", some, ANCHOR, "token", text=True)


def remote(bench: Bench) -> None:
    """An epoch of images from a bucket, with an empty cache and with a full one."""
    rows = sum(1 for _ in (bench.data / "images" / "jpegs").glob("*/*.jpg"))
    found: dict[str, list[Run]] = {}
    once = replace(bench, runs=1)
    with served(bench.data / "images"):
        for name in REMOTE * bench.runs:
            with tempfile.TemporaryDirectory() as cache:
                settings = {"remote": "s3://images", "cache": cache, "rows": rows - BATCH_SIZES["images"] * 4}
                cases = bench.cases("images", [name], **settings)
                for label in ("cold", "warm"):
                    labelled = [replace(case, label=f"{case.title}, {label}") for case in cases]
                    for title, runs in once.measure(labelled, 0).items():
                        found.setdefault(title, []).extend(runs)
    for label in ("cold", "warm"):
        some = {name: runs for name, runs in found.items() if name.endswith(label)}
        compare(f"Images of 256×256 from a bucket, {label}", some, f"litdata, {label}", "image", text=False)


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """Serves a folder as a bucket of its name, as all clients of S3 find it."""
    command = [sys.executable, str(HERE.parent / "object_server.py"), str(folder), *WIRE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = f"http://127.0.0.1:{int(server.stdout.readline())}"
            keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
            os.environ |= keys | {"AWS_ENDPOINT_URL": address, "S3_ENDPOINT_URL": address}
            yield
        finally:
            server.kill()


def memory(bench: Bench) -> None:
    """Memory of our reader by its worker processes, when each has made batches."""
    counts = {f"{count} workers": count for count in (1, 8, 64)}
    cases = [Case("images", f"{OURS}_numpy", {"processes": count}, name) for name, count in counts.items()]
    found = bench.measure(cases, MEMORY_SECONDS)
    rows = [(name, f"{median(run['memory'] for run in runs) / 1e6:,.0f} MB") for name, runs in found.items()]
    table("Memory by workers, batches of 32 images, uint8", ("", "median"), rows)


def cores(bench: Bench) -> None:
    """Images a second by the cores that a pipeline may use: threads, worker processes, both, and the peers."""
    most = len(os.sched_getaffinity(0))
    counts = sorted({1 << power for power in range(most.bit_length()) if 1 << power <= most} | {most})
    cases = {n: bench.cases("images", CORES, cores=n, workers=n) + worker_cases(bench, n) for n in counts}
    found = {n: bench.measure(cases[n], bench.seconds) for n in counts}
    names = [case.title for case in cases[most]]
    rows = []
    for name in names:
        speeds = [f"{median(rates(found[n][name])):,.0f}" if found[n].get(name) else "-" for n in counts]
        rows.append([name, *speeds])
    table("Images/s by cores", ("", *map(str, counts)), rows)


def worker_cases(bench: Bench, count: int) -> list[Case]:
    """Gives our reader with as many worker processes as cores, and with two threads in each of half as many."""
    alone, both = {"workers": 1, "processes": count}, {"workers": 2, "processes": max(1, count // 2)}
    cases = []
    for name in RECORDMILL_WORKERS:
        for settings, label in ((alone, "workers"), (both, "workers of two threads")):
            some = bench.cases("images", [name], cores=count, **settings)
            cases += [replace(case, label=f"{name}, {label}") for case in some]
    return cases


BENCHMARKS: dict[str, Callable[[Bench], None]] = {
    "images": images,
    "text": text,
    "remote": remote,
    "memory": memory,
    "cores": cores,
}


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Measures the training input beside its peers; prints Markdown.")
    parser.add_argument("names", nargs="*", metavar="BENCHMARK", help=f"{', '.join(BENCHMARKS)}; none: all of them")
    parser.add_argument("--runs", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each window (default: 5)")
    parser.add_argument("--only", type=lambda names: frozenset(names.split(",")), default=frozenset(), help="pipelines")
    parser.add_argument("--dtype", choices=("uint8", "float32"), help="of images; both where it is not given")
    parser.add_argument("--data", type=Path, default=ROOT / "bench-data" / "reader", help="where data is kept")
    options = parser.parse_args()
    if not set(options.names) <= set(BENCHMARKS):
        parser.error(f"no such benchmark: {' '.join(options.names)}; there are {', '.join(BENCHMARKS)}")
    return options


def main() -> None:
    """Runs the benchmarks one after another."""
    options = arguments()
    dtypes = [options.dtype] if options.dtype else ["uint8", "float32"]
    bench = Bench(options.data.resolve(), options.runs, options.seconds, options.only, dtypes)
    print(f"Medians of {options.runs} on {machine(PACKAGES)}")
    for name in options.names or BENCHMARKS:
        prepare("text" if name == "text" else "images", bench.data)
        BENCHMARKS[name](bench)


if __name__ == "__main__":
    main()
