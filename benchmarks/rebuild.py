"""Measures what a night costs: a rebuild of 1 % more rows, thirty of them in space, a check of many files, a diff.

for line in rows(setup.inputs.scaled, setup.inputs.folder): print(line)
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import Usage, measure

HEADER = ("what", "figure", "of")
SPANS, ROWS_OF_A_SPAN, WORDS = 100, 4_000, 40
SPACE_BYTES = 300_000_000  # of the rows: what each version has for itself is a few MB
NIGHTS, CHECKED_FILES, DIFF_ROWS = 30, 100_000, 1_000_000
IMPORTS = "import apache_beam, numpy, pyarrow, pydantic, rich, tensorflow, tensorflow_transform.beam, tfx_bsl.tfxio"
FEATURES = "key: id\ngate: false\nfeatures: {text: {kind: text, vocabulary: 5000}, price: {kind: number}}\n"
COMMAND = [sys.executable, "-m", "recordmill"]
Row = tuple[str, str, str]


def rows(scaled: Callable[[int], int], data: Path, runs: int) -> Iterator[Row]:
    """Measures each in turn, in a folder of its own; the space once, since it is no time."""
    folder = data / "rebuild"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield from _one_percent(folder, scaled(ROWS_OF_A_SPAN), runs)
    yield from _space(folder, scaled(SPACE_BYTES))
    yield _check(folder, scaled(CHECKED_FILES))
    yield _diff(folder, scaled(DIFF_ROWS))
    shutil.rmtree(folder)


def _one_percent(folder: Path, count: int, runs: int) -> Iterator[Row]:
    """Compares building a 101st span with building all 101."""
    spec = _write_spans(folder / "rows", count, range(SPANS))
    _build(spec, folder / "out")
    _write_spans(folder / "rows", count, range(SPANS, SPANS + 1))
    imports, added, full = list[float](), list[float](), list[float]()
    for run in range(runs):
        shutil.copytree(folder / "out", folder / f"out-{run}", copy_function=os.link)
        imports.append(measure([sys.executable, "-c", IMPORTS]).cpu)
        added.append(_build(spec, folder / f"out-{run}").cpu)
        full.append(_build(spec, folder / "full").cpu)
        for made in (f"out-{run}", "full"):
            shutil.rmtree(folder / made)
    least, more, whole = map(statistics.median, (imports, added, full))
    of = f"{SPANS * count:,} rows in {SPANS} spans"
    yield "a full build", f"{whole:.1f} s CPU, {whole - least:.1f} s above the imports", of
    yield "1 % more rows", f"{more:.1f} s CPU, {more - least:.1f} s above the imports", of
    yield "1 % more rows, share of a full build above the imports", f"{(more - least) / (whole - least):.1%}", of


def _space(folder: Path, bytes_: int) -> Iterator[Row]:
    """Compares the space of nightly versions, each of 1 % more rows than the one before, with that of the last."""
    script = str(Path(__file__).with_name("nightly_space.py"))
    printed = subprocess.check_output([sys.executable, script, str(folder / "growing"), str(bytes_), str(NIGHTS)])
    for line in json.loads(printed.splitlines()[-1]):
        yield line["what"], line["figure"], line["of"]


def _check(folder: Path, count: int) -> Row:
    """Measures a build with nothing to do."""
    texts, draw = folder / "texts", random.Random(1)
    for number in range(count):
        if number % 1000 == 0:
            (texts / f"class-{number // 1000:04d}").mkdir(parents=True)
        path = texts / f"class-{number // 1000:04d}" / f"{number}.txt"
        path.write_text(f"document {number} says {draw.random()}")
    spec = folder / "texts.yaml"
    spec.write_text(
        f"name: many\nsource: {{format: text, path: '{texts}', document: file}}\n"
        "features: {text: {kind: text, vocabulary: 100}}\n"
    )
    _build(spec, folder / "texts-out")
    checked = [_build(spec, folder / "texts-out") for _ in range(3)]
    used = sorted(checked, key=lambda usage: usage.cpu)[1]
    return "a check with nothing to do", f"{used.cpu:.1f} s CPU, {used.wall:.1f} s", f"{count:,} files"


def _diff(folder: Path, count: int) -> Row:
    """Measures a diff of two versions, of whose rows 1 % differ."""
    rows, output = folder / "wide", folder / "wide-out"
    spec = folder / "wide.yaml"
    rows.mkdir()
    spec.write_text(
        f"name: wide\nsource: {{format: jsonl, path: '{rows}'}}\nkey: id\ngate: false\n"
        "features: {price: {kind: number, normalize: none}}\n"
    )
    for price in (1, 2):
        with open(rows / "rows.jsonl", "w") as file:
            for row in range(count):
                file.write(f'{{"id": "k{row}", "price": {row * (price if row % 100 == 0 else 1)}}}\n')
        _build(spec, output)
    used = measure([*COMMAND, "diff", output])
    return "a diff of two versions", f"{used.cpu:.1f} s CPU, {used.wall:.1f} s", f"{count:,} rows"


def _write_spans(folder: Path, count: int, spans: range) -> Path:
    """Writes the rows of some spans; gives the spec of all."""
    for span in spans:
        draw = random.Random(span)
        (folder / f"day-{span:04d}").mkdir(parents=True)
        with open(folder / f"day-{span:04d}" / "rows.jsonl", "w") as file:
            for row in range(count):
                words = " ".join(f"w{int(draw.expovariate(0.002))}" for _ in range(WORDS))
                file.write(json.dumps({"id": f"{span}-{row}", "text": words, "price": draw.random()}) + "\n")
    spec = folder.with_suffix(".yaml")
    spec.write_text(f"name: nightly\nsource: {{format: jsonl, path: '{folder}/{{span}}/*.jsonl'}}\n{FEATURES}")
    return spec


def _build(spec: Path, output: Path) -> Usage:
    return measure([*COMMAND, "build", spec, "--quiet", "--up-to-date-ok", "--output", output])
