"""A whole version, file by file and shard by shard, several at once.

>>> found = verify_version(Path("out/emoji/versions/20261120T120000Z-4f1c9a2e"), manifest)  # doctest: +SKIP
>>> found.problems                                                                            # doctest: +SKIP
[]
"""

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest
from recordmill.pipeline.reader.records.remote_path import RemotePath
from recordmill.pipeline.verify.consistency import check_agreement
from recordmill.pipeline.verify.files import VersionFiles, check_file, listed_files, stray_files
from recordmill.pipeline.verify.findings import Findings
from recordmill.pipeline.verify.graph_safety import GRAPHS, check_operations
from recordmill.pipeline.verify.records import split_layout
from recordmill.pipeline.verify.shards import Checked, Place, check_shards
from recordmill.transforms.contract.stored import stored_parts

MANY_BYTES = 256 << 20  # 256 MiB of shards: a second or more, which processes take to start
TURNS = 4  # in which a process gets its shards, so that none waits long for the last

OLD = "files beside shards: the version is of a Recordmill whose manifests listed none"
QUICK = "records, indexes, counts: `--quick` compares sizes and digests alone"


def verify_version(folder: Path | RemotePath, manifest: Manifest, *, quick: bool = False) -> Findings:
    """Checks all that the version's own files can tell.

    Args:
        folder: the version's folder.
        manifest: its manifest.
        quick: only sizes and digests, and the graphs' operations.

    Raises:
        DatasetError: the manifest describes a feature in a way that is not known here.
    """
    files, found = VersionFiles(folder), Findings()
    _check_described(manifest)
    shards = {shard.file: shard for split in manifest.splits.values() for shard in split.shards}
    if not quick:
        _check_shards(files, manifest, found)
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # to read and to digest takes no lock of Python's
        if quick:
            digests = [(shard.file, shard.bytes, shard.sha256) for shard in shards.values()]
            found.unchecked.append(QUICK)
            _gather(found, threads.map(lambda given: check_file(files, *given), digests))
            found.checked.update(shards=len(shards))
        listed = [(path, entry["bytes"], entry["sha256"]) for path, entry in listed_files(manifest).items()]
        _gather(found, threads.map(lambda given: check_file(files, *given), listed))
        _gather(found, threads.map(partial(check_operations, files), GRAPHS))
    for path in stray_files(files, manifest):
        found.tell(path, "the manifest lists no such file")
    if not manifest.files:
        found.unchecked.append(OLD)
    if not quick:
        found.add(check_agreement(files, manifest))
    return found


def _check_described(manifest: Manifest) -> None:
    """Makes sure that the manifest says what records are: all else is compared with it."""
    for name, description in manifest.features.items():
        try:
            stored_parts(description)
        except (KeyError, TypeError):
            raise DatasetError(
                f"the feature '{name}' is of kind {description['kind']!r:.50}, which this Recordmill does not know, or "
                "its description is broken: upgrade, or restore dataset.json from a copy"
            ) from None
    try:
        layout = split_layout(manifest)
        if layout is not None:
            layout.split_of(np.zeros(0, np.uint64))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"the spec in dataset.json is broken ({error}): restore it from a copy") from None


def _check_shards(files: VersionFiles, manifest: Manifest, found: Findings) -> None:
    places = [(name, number) for name, split in manifest.splits.items() for number in range(len(split.shards))]
    labels: dict[str, Counter[int]] = {name: Counter() for name in manifest.splits}
    for (of_split, _), (of_shard, counts) in zip(places, _each_shard(files, manifest, places), strict=True):
        found.add(of_shard)
        labels[of_split].update(counts)
    for name, split in manifest.splits.items():
        expected = split.label_counts or ()
        counted = tuple(labels[name][label] for label in range(len(expected)))
        if counted != expected and not any(shard.file in found.told for shard in split.shards):
            found.tell(MANIFEST_FILE, _other_labels(name, counted, expected))


def _each_shard(files: VersionFiles, manifest: Manifest, places: Sequence[Place]) -> Iterator[Checked]:
    """Checks shards; many bytes in several processes, because Python's lock is held for the most part."""
    workers = min(os.cpu_count() or 1, len(places))
    if workers < 2 or sum(split.bytes for split in manifest.splits.values()) < MANY_BYTES:
        yield from check_shards(files, manifest, places)
        return
    size = -(-len(places) // (TURNS * workers))
    turns = [places[start : start + size] for start in range(0, len(places), size)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        try:
            for checked in pool.map(partial(check_shards, files, manifest), turns):
                yield from checked
        except BrokenExecutor:
            raise DatasetError("a process that checked shards was killed, for lack of memory?: try again") from None


def _other_labels(split: str, counted: tuple[int, ...], expected: tuple[int, ...]) -> str:
    label = next(label for label, pair in enumerate(zip(counted, expected, strict=True)) if pair[0] != pair[1])
    return f"the label {label} is that of {counted[label]:,} records of '{split}', expected {expected[label]:,}"


def _gather(found: Findings, parts: Iterable[Findings]) -> None:
    for part in parts:
        found.add(part)
