"""Attempts at a build: each works in a folder of its own, and takes over the finished work of an earlier one.

    OUT/.building/<build key>/run-<12 hex digits>/

An attempt takes an earlier one's work over by renaming that folder to a new name. A process that still writes for the
earlier attempt opens files by path, and fails. The new attempt removes unfinished work, and keeps

- the files of each chunk that the passes before the job read;
- if every chunk was read: the analysis, and each shard that has its report and whose files have their sizes.

It keeps nothing if a rejected row is doubtful: a file that is there now may have been away for a while.

    run = begin(building_folder(output), plan.build_key, pieces, is_doubtful)
    if run.kept: print(run.kept)          # the analysis and 12 of 16 shards
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recordmill.pipeline.build.context.rejects import read_rejects
from recordmill.pipeline.build.context.steps import FOLDERS, chunk_step, shard_step
from recordmill.pipeline.build.reconcile import expected_rows
from recordmill.pipeline.dataset.atomic_files import read_report, write_report
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.versions.build_folders import entries, remove_run, runs

PLAN = "plan"
Report = dict[str, Any]
Piece = tuple[int, str, int]
"""A chunk's source, file and bytes."""


@dataclass(frozen=True)
class Kept:
    """The finished work of an earlier attempt."""

    export: str
    """The folder of the analysis' export."""
    shards: dict[int, Report]
    """The reports of the finished shards, by group."""
    groups: frozenset[int]
    """The groups whose shards are still to be built."""
    chunks: frozenset[int]
    """The chunks that hold rows of these groups."""

    def __str__(self) -> str:
        return f"the analysis and {len(self.shards)} of {len(self.shards) + len(self.groups)} shards"

    @property
    def bytes(self) -> int:
        """The size of the finished shards in bytes."""
        return sum(shard["bytes"] for shard in self.shards.values())


@dataclass(frozen=True)
class Run:
    """An attempt's own folder, absolute, and the finished work in it."""

    folder: str
    kept: Kept | None = None

    def is_there(self) -> bool:
        """Whether the folder is still that of this run."""
        return Path(self.folder, "reports", f"{PLAN}.json").is_file()

    def give_up(self) -> None:
        """Removes what no other attempt can use: scratch, or if no step is finished, the folder."""
        shutil.rmtree(Path(self.folder, "scratch"), ignore_errors=True)
        finished = [file for name in ("reports", "first") for file in Path(self.folder, name).rglob("*.*")]
        if {file.name for file in finished} <= {f"{PLAN}.json"}:
            remove_run(self.folder)


def begin(
    building: str, build_key: str, pieces: Sequence[Piece], is_doubtful: Callable[[Reject], bool] = lambda reject: False
) -> Run:
    """Begins an attempt with the finished work of an earlier one, or empty; the caller holds the build's lease.

    Args:
        building: the folder of all builds (`building_folder`).
        build_key: the build's key.
        pieces: the chunks; work on other chunks is useless.
        is_doubtful: whether a row that was rejected may be a good one.

    Raises:
        OSError: the folder cannot be made or written.
    """
    key = Path(building, build_key[:16])
    key.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(json.dumps(pieces).encode()).hexdigest()
    fitting = [
        run
        for run in runs(key)
        if (read_report(str(run / "reports"), PLAN) or {}).get("chunks") == digest
        and not any(map(is_doubtful, _rejects(run)))
    ]
    folder, kept = key / f"run-{uuid.uuid4().hex[:12]}", None
    if fitting:
        most = max(fitting, key=lambda run: len(entries(run / "reports")))
        try:
            os.rename(most, folder)
        except FileNotFoundError:
            pass  # another build has just removed it
        else:
            kept = _cleared(folder, len(pieces))
    for other in runs(key):
        if other != folder:
            remove_run(other)
    folder.mkdir(parents=True, exist_ok=True)
    for name in FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    write_report(str(folder / "reports"), PLAN, {"chunks": digest})
    return Run(str(folder), kept)


def clear(folder: Path, but: Collection[str] = ()) -> None:
    """Removes what is in a folder, except for the entries of these names."""
    for entry in [entry for entry in entries(folder) if entry.name not in but]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _kept(run: Path, chunks: int) -> Kept | None:
    """The finished work; None if the analysis is not finished."""
    reports = str(run / "reports")
    analysis = read_report(reports, "analysis")
    read = [report for chunk in range(chunks) if (report := read_report(reports, chunk_step(chunk)))]
    if analysis is None or len(read) < chunks:
        return None
    expected = expected_rows(read)
    shards = {group: report for group in expected if (report := _finished(run, group))}
    groups = frozenset(expected.keys() - shards.keys())
    wanted = frozenset(chunk for chunk, report in enumerate(read) if groups & set(map(int, report["groups"])))
    return Kept(str(run / "analysis" / analysis["export"]), shards, groups, wanted)


def _finished(run: Path, group: int) -> Report | None:
    """The report of a shard, if its files are whole."""
    report = read_report(str(run / "reports"), shard_step(group))
    if report is None:
        return None
    sizes = {report["file"]: report["bytes"], report["index"]: 8 * (report["records"] + 1)}
    files = [run / "version" / name for name in sizes]
    whole = all(file.is_file() and file.stat().st_size == sizes[file.name] for file in files)
    return report if whole else None


def _rejects(run: Path) -> Iterator[Reject]:
    """Reads the rejects of an attempt's steps, and of the passes before the job."""
    for path in (*run.glob("rejects/*.jsonl"), *run.glob("first/*/*.jsonl")):
        yield from read_rejects(str(path.parent), path.name)


def _cleared(run: Path, chunks: int) -> Kept | None:
    """Removes unfinished work; returns the finished."""
    kept = _kept(run, chunks)
    if kept is None:
        for name in set(FOLDERS) - {"first"}:
            clear(run / name)
        return None
    for group in kept.groups:
        (run / "reports" / f"{shard_step(group)}.json").unlink(missing_ok=True)
    steps = [*map(shard_step, kept.shards), *map(chunk_step, set(range(chunks)) - kept.chunks)]
    clear(run / "scratch")
    clear(run / "progress", {f"{step}.json" for step in steps})
    clear(run / "analysis", {os.path.basename(kept.export)})
    clear(run / "version", {shard[what] for shard in kept.shards.values() for what in ("file", "index")})
    return kept
