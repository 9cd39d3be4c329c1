"""`recordmill verify` without the sources: checks a version's files and shards in parallel."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np

from recordmill.dataset import open_dataset
from recordmill.pipeline.dataset.file_names import shown_paths
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest
from recordmill.pipeline.parallel import cores
from recordmill.pipeline.reader.remote import VersionFiles
from recordmill.pipeline.verify import files as checks
from recordmill.pipeline.verify.report import Findings, Verification
from recordmill.pipeline.verify.shards import CheckedShard, check_shards, shard_numbers, split_layout
from recordmill.transforms.contract.kinds import read_descriptions

MANY_BYTES = 256 << 20  # 256 MiB of shards take a second or more, as long as processes take to start
TURNS = 4  # portions of shards per process, to balance the load

QUICK = "records, indexes, counts: `--quick` compares only sizes and digests"
NO_PARITY = "training = serving: give --spec dataset.yaml; its sources must be at their paths"


def verify(folder: str, version: str | None = None, *, quick: bool = False) -> Verification:
    """Checks a version against its manifest.

    Args:
        folder: the dataset's folder, or a version's; on this machine or a URL.
        version: a version's name; by default the live one.
        quick: checks only sizes, digests, and the graphs' operations.

    Raises:
        DatasetError: the version does not exist, its manifest is broken, or has a feature of an unknown kind.
    """
    started, dataset = time.monotonic(), open_dataset(folder, version)
    files, manifest, findings = VersionFiles(dataset.folder), dataset.manifest, Findings()
    _check_described(manifest)
    if not quick:
        _check_shards(files, manifest, findings)
    with ThreadPoolExecutor(cores()) as threads:  # reading and SHA-256 release the GIL
        if quick:
            findings.merge(*threads.map(partial(checks.check_shard_file, files), manifest.shards))
            findings.unchecked.append(QUICK)
            findings.checked.update(shards=len(manifest.shards))
        listed = ((path, entry["bytes"], entry["sha256"]) for path, entry in manifest.files.items())
        findings.merge(*threads.map(lambda file: checks.check_file(files, *file), listed))
        graphs = () if manifest.adopted else checks.GRAPHS
        findings.merge(*threads.map(partial(checks.check_operations, files), graphs))
    for path in checks.stray_files(files, manifest):
        findings.add(path, "the manifest does not list this file")
    if not quick:
        findings.merge(checks.check_agreement(files, manifest))
    return Verification(manifest, str(dataset.folder), findings, time.monotonic() - started)


def _check_described(manifest: Manifest) -> None:
    """Checks the manifest's description of the records, needed by all other checks. Raises: DatasetError."""
    read_descriptions(manifest.features)
    try:
        layout = split_layout(manifest)
        if layout is not None:
            layout.split_of(np.zeros(0, np.uint64))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DatasetError(f"the spec in dataset.json is broken ({error}): restore it from a copy") from None


def _check_shards(files: VersionFiles, manifest: Manifest, findings: Findings) -> None:
    labels: dict[str, Counter[int]] = {name: Counter() for name in manifest.splits}
    for (split_name, _), (of_shard, counts) in zip(shard_numbers(manifest), _each_shard(files, manifest), strict=True):
        findings.merge(of_shard)
        labels[split_name].update(counts)
    for name, split in manifest.splits.items():
        if any(shown_paths(shard)[0] in findings.counts for shard in split.shards):
            continue
        for label, expected in enumerate(split.label_counts or ()):
            if labels[name][label] != expected:
                counted = f"{labels[name][label]:,} records of '{name}' have the label {label}"
                findings.add(MANIFEST_FILE, f"{counted}, expected {expected:,}")
                break


def _each_shard(files: VersionFiles, manifest: Manifest) -> Iterator[CheckedShard]:
    """Checks the shards; large versions in several processes, because most checks hold the GIL."""
    shards = shard_numbers(manifest)
    workers = min(cores(), len(shards))
    if workers < 2 or manifest.bytes < MANY_BYTES:
        yield from check_shards(files, manifest, shards)
        return
    size = -(-len(shards) // (TURNS * workers))
    turns = [shards[start : start + size] for start in range(0, len(shards), size)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        try:
            for checked in pool.map(partial(check_shards, files, manifest), turns):
                yield from checked
        except BrokenExecutor:
            raise DatasetError("a worker process was killed, perhaps out of memory: try again") from None
