"""Measures each source's reading step, from the file to packed rows, beside a plain read of the same file.

    python benchmarks/sources.py --rows 200000 --runs 5

CPU seconds of one process: ours reads, checks, hashes, cuts by shard and packs into scratch; the plain reader only
parses (pyarrow, one thread), walks (tarfile), or iterates (`TFRecordDataset`, whose records it parses in batches).
"""

import argparse
import csv
import io
import json
import shutil
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet
import tensorflow as tf
from run import machine, table

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.build.plan.planned_build import planned_build
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.build.worker.packing import pack
from recordmill.pipeline.spec.model import parse_spec

Row = dict[str, Any]
WORDS = [f"word{number:03d}" for number in range(1000)]
SPEC = """
name: rows
source: {{format: {format}, path: {path}}}
key: {key}
features:
  text: {{kind: text{text}}}
  kind: {{kind: category{kind}}}
  number: {{kind: number{number}}}
"""
MEMBERS = {"text": ", column: json.text", "kind": ", column: json.kind", "number": ", column: json.number"}


def rows(count: int) -> Iterator[Row]:
    """Rows of about 550 bytes."""
    random = np.random.default_rng(0)
    for number in range(count):
        text = " ".join(WORDS[word] for word in random.integers(0, 1000, 62))
        yield {"id": f"row-{number:08d}", "text": text, "kind": WORDS[number % 7], "number": float(random.normal())}


def write_csv(path: Path, count: int) -> None:
    """Text without line breaks."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text", "kind", "number"])
        writer.writeheader()
        writer.writerows(rows(count))


def write_jsonl(path: Path, count: int) -> None:
    """An object a line."""
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows(count))


def write_parquet(path: Path, count: int) -> None:
    """Row groups of 20,000."""
    pa.parquet.write_table(pa.Table.from_pylist(list(rows(count))), path, row_group_size=20_000)


def write_text(path: Path, count: int) -> None:
    """A document a line."""
    with path.open("w") as file:
        file.writelines(f"{row['id']} {row['text']}\n" for row in rows(count))


def write_tfrecord(path: Path, count: int) -> None:
    """Examples."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows(count):
            example = tf.train.Example()
            for name in ("id", "text", "kind"):
                example.features.feature[name].bytes_list.value.append(row[name].encode())
            example.features.feature["number"].float_list.value.append(row["number"])
            writer.write(example.SerializeToString())


def write_tar(path: Path, count: int) -> None:
    """A member of JSON a sample."""
    with tarfile.open(path, "w") as archive:
        for row in rows(count):
            data = json.dumps(row).encode()
            info = tarfile.TarInfo(f"{row['id']}.json")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def read_csv(path: Path) -> None:
    """By pyarrow."""
    pa.csv.read_csv(path, pa.csv.ReadOptions(use_threads=False))


def read_jsonl(path: Path) -> None:
    """By pyarrow."""
    pa.json.read_json(path, pa.json.ReadOptions(use_threads=False, block_size=8 << 20))


def read_parquet(path: Path) -> None:
    """By pyarrow."""
    pa.parquet.read_table(path, use_threads=False)


def read_text(path: Path) -> None:
    """Python's lines."""
    with path.open("rb") as file:
        for _ in file:
            pass


def read_tfrecord(path: Path) -> None:
    """Records, parsed 1,024 at a time."""
    strings = {name: tf.io.FixedLenFeature([], tf.string) for name in ("id", "text", "kind")}
    features = {**strings, "number": tf.io.FixedLenFeature([], tf.float32)}
    for batch in tf.data.TFRecordDataset(str(path)).batch(1024):
        tf.io.parse_example(batch, features)


def read_tar(path: Path) -> None:
    """Every member by tarfile, its JSON parsed."""
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            json.loads(file.read() if file else b"{}")


Format = tuple[str, str, Callable[[Path, int], None], Callable[[Path], None], dict[str, str]]
NONE = {"text": "", "kind": "", "number": ""}
FORMATS: dict[str, Format] = {
    "csv": ("rows.csv", "id", write_csv, read_csv, NONE),
    "jsonl": ("rows.jsonl", "id", write_jsonl, read_jsonl, NONE),
    "parquet": ("rows.parquet", "id", write_parquet, read_parquet, NONE),
    "text": ("rows.txt", "text", write_text, read_text, {}),
    "tfrecord": ("rows.tfrecord", "id", write_tfrecord, read_tfrecord, NONE),
    "webdataset": ("rows.tar", "__key__", write_tar, read_tar, MEMBERS),
}


def spec_text(name: str, path: Path) -> str:
    """The spec of a file; lines of text have one column."""
    _, key, _, _, columns = FORMATS[name]
    if not columns:
        return f"name: rows\nsource: {{format: {name}, path: {path}}}\nkey: {key}\nfeatures:\n  text: {{kind: text}}\n"
    return SPEC.format(format=name, path=path, key=key, **columns)


def read_step(name: str, path: Path, scratch: Path) -> int:
    """Reads, hashes and packs a file as a worker does; gives the number of rows."""
    spec, files = parse_spec(spec_text(name, path)), BeamFiles()
    plan = make_plan(spec, files)
    work = planned_build(plan, str(scratch), files, inline=False, threads=1)
    done = 0
    for chunk in plan.chunks:
        waiting, source = [], work.readers[chunk.source]
        for block in source.read(chunk, files, work.schema.columns, work.schema.source_key):
            keyed, rejects = key_rows(block, chunk, work.schema, work.layout)
            if rejects:
                raise RuntimeError(f"{name}: {rejects[0]}")
            waiting.append(keyed)
            done += keyed.num_rows
        list(pack(pa.concat_tables(waiting), str(scratch)))
    return done


def cpu(function: Callable[[], object]) -> float:
    """The CPU seconds of a call."""
    before = time.process_time()
    function()
    return time.process_time() - before


def main() -> None:
    """Reads the command line, measures each source and prints a table."""
    parser = argparse.ArgumentParser(description="Measures each source's reading step.")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("sources", nargs="*", default=list(FORMATS))
    arguments = parser.parse_args()
    print(machine())
    lines = []
    for name in arguments.sources:
        file, _, write, plain, _ = FORMATS[name]
        with tempfile.TemporaryDirectory() as folder:
            path, scratch = Path(folder, file), Path(folder, "scratch")
            write(path, arguments.rows)
            scratch.mkdir()
            found = []
            for _ in range(arguments.runs + 1):  # the first warms up
                ours = cpu(lambda: read_step(name, path, scratch))  # noqa: B023
                found.append((ours, cpu(lambda: plain(path))))  # noqa: B023
                shutil.rmtree(scratch)
                scratch.mkdir()
        per_row = [[1e6 * seconds / arguments.rows for seconds in pair] for pair in found[1:]]
        ours, theirs = (statistics.median(column) for column in zip(*per_row, strict=True))
        above = statistics.median(a - b for a, b in per_row)
        lines.append([name, f"{ours:.1f}", f"{theirs:.1f}", f"{above:.1f}"])
        print(name, file=sys.stderr)
    table("Reading, µs of CPU a row", ("", "read, hash, pack", "plain read", "above it"), lines)


if __name__ == "__main__":
    main()
