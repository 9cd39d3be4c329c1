"""Attempts at a build: each has its workspace, and continues the finished work of an earlier one.

    OUT/.building/<build key>/run-<12 hex digits>/

A new attempt removes unfinished work, and keeps the chunk files of the jobs before the writing one; and if every chunk
was read, the analysis, and each shard with a report and files of the reported sizes. It keeps nothing if a rejected row
is doubtful: its file may have been missing for a while.

In a folder, it renames the attempt's folder: late writers of the earlier attempt open files by path, and fail. A bucket
cannot rename: the attempt copies the small files into a new folder, and late writers write where nobody looks. Shards
stay in `versions/<version>/`, a name that the first attempt chose; they are never replaced, and hidden until the
manifest is written.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from recordmill.pipeline.build.context import reports
from recordmill.pipeline.build.context.reports import ChunkReport
from recordmill.pipeline.dataset.counts import Counts, ShardReport
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, VERSIONS_FOLDER
from recordmill.pipeline.dataset.paths import attempt_name, is_unfinished, locate
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.versions import build_folders, publishing
from recordmill.pipeline.versions.stores.base import CLAIM_FILE, Conflict, Store
from recordmill.pipeline.versions.stores.bucket import CONNECTIONS
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.open_store import is_local, open_bucket

PLAN = build_folders.PLAN_FILE.removesuffix(".json")
"""The first report of an attempt: a digest of its chunks, and in a bucket the version's name."""
PASSES = ("placement", "look")  # the folders of the jobs before the writing one: every file in them is finished
Piece = tuple[int, str, int]  # a chunk's source, file and bytes


@dataclass(frozen=True)
class Kept:
    """The finished work of an earlier attempt."""

    export: str  # the archive of the transform graph's export
    shards: dict[int, ShardReport]  # finished, by group
    groups: frozenset[int]  # without finished shards
    chunks: frozenset[int]  # with rows of these groups
    counts: Mapping[str, int] = field(default_factory=dict)  # progress of the finished steps

    def __str__(self) -> str:
        return f"the transform graph and {len(self.shards)} of {len(self.shards) + len(self.groups)} shards"

    @property
    def bytes(self) -> int:
        return sum(shard.files.bytes for shard in self.shards.values())

    @cached_property
    def files(self) -> set[str]:
        return {path for shard in self.shards.values() for path in shard.files.paths}

    @cached_property
    def unfinished(self) -> set[str]:
        """The reports of unfinished shards, by name: their files may be damaged."""
        return {f"reports/{reports.shard_step(group)}.json" for group in self.groups}


def is_kept(name: str, kept: Kept | None) -> bool:
    """Whether the next attempt keeps a file of a workspace; without `kept`, only results of earlier jobs."""
    folder, _, inner = name.partition("/")
    if kept is None:
        return folder in PASSES
    if folder == "analysis":
        return name == kept.export
    if folder in ("chunks", "progress"):  # of another job
        return False
    return inner in kept.files if folder == "version" else name not in kept.unfinished


@dataclass(frozen=True)
class Run:
    """An attempt, and the finished work in it."""

    workspace: Store
    shards: Store  # with the indexes
    folder: str  # its absolute folder on this machine: the workspace, or only scratch if that is in a bucket
    place: "LocalPlace | BucketPlace"
    version: str = ""  # the name of the version to be, if its shards already lie in its folder
    kept: Kept | None = None

    def is_there(self) -> bool:
        return self.workspace.read(build_folders.PLAN_FILE) is not None

    def remove(self) -> None:
        """Removes it, with the shards of an unpublished version."""
        self.place.remove(self)

    def give_up(self) -> None:
        """Removes what no other attempt can use: scratch, or everything if no step is finished."""
        shutil.rmtree(Path(self.folder, "scratch"), ignore_errors=True)
        finished = {name for folder in ("reports", *PASSES) for name in self.workspace.names(folder)}
        if finished <= {build_folders.PLAN_FILE}:
            self.remove()


class LocalPlace:
    """The attempts at one build in the folder of an output; the caller holds the output's lease."""

    def __init__(self, output: str, building: str, build_key: str) -> None:
        self._folder = Path(locate(building, build_key[:16]))
        self._folder.mkdir(parents=True, exist_ok=True)

    def runs(self) -> list[Run]:
        return [self._run(folder) for folder in build_folders.runs(self._folder)]

    def new_run(self) -> Run:
        folder = self._folder / _new_name()
        folder.mkdir(parents=True)
        return self._run(folder)

    def take_over(self, run: Run, find: Callable[[Run], Kept | None]) -> Run | None:
        """Begins an attempt with the finished work that `find` returns for an earlier one; None if that is gone."""
        folder = self._folder / _new_name()
        try:
            os.rename(run.folder, folder)
        except FileNotFoundError:  # another build has just removed it
            return None
        taken = self._run(folder)
        kept = find(taken)
        for path in [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]:
            name = path.relative_to(folder).as_posix()
            is_plain = path.is_file() and not path.is_symlink()
            if not is_plain or is_unfinished(name) or not is_kept(name, kept):
                path.unlink(missing_ok=True)
        return replace(taken, kept=kept)

    def remove_others(self, run: Run) -> None:
        for other in build_folders.runs(self._folder):
            if str(other) != run.folder:
                build_folders.remove_run(other)

    def remove(self, run: Run) -> None:
        build_folders.remove_run(run.folder)

    def _run(self, folder: Path) -> Run:
        workspace = LocalStore(str(folder))
        return Run(workspace, workspace.at("version"), str(folder), self)


def _new_name() -> str:
    return f"{build_folders.RUN}{uuid.uuid4().hex[:12]}"


class BucketPlace:
    """The attempts in a bucket, each with a folder on this machine for scratch."""

    def __init__(self, output: str, building: str, build_key: str) -> None:
        self._store, self._key = open_bucket(output), build_key
        self._folder = f"{build_folders.BUILDING_FOLDER}/{build_key[:16]}"
        self._scratch = Path(building, build_key[:16])

    def runs(self) -> list[Run]:
        """Leaves out an attempt whose version is published: its work is done."""
        found = []
        for name in self._store.children(self._folder):
            version = (reports.read_report(self._workspace(name), PLAN) or {}).get("version")
            if version and not self._store.exists(f"{VERSIONS_FOLDER}/{version}/{MANIFEST_FILE}"):
                found.append(self._run(name, version))
        return found

    def _workspace(self, name: str) -> Store:
        return self._store.at(f"{self._folder}/{name}")

    def _run(self, name: str, version: str) -> Run:
        shards = self._store.at(f"{VERSIONS_FOLDER}/{version}")
        return Run(self._workspace(name), shards, str((self._scratch / name).absolute()), self, version)

    def new_run(self) -> Run:
        """Claims a version's name, which nobody else has."""
        for version in publishing.free_names(publishing.version_name(self._key)):
            try:
                self._store.claim(f"{VERSIONS_FOLDER}/{version}", self._claim)
            except Conflict:
                continue
            break
        return self._run(_new_name(), version)

    @property
    def _claim(self) -> bytes:
        return attempt_name(self._key[:16]).encode()

    def take_over(self, run: Run, find: Callable[[Run], Kept | None]) -> Run | None:
        """Copies the small files but the plan; deletes the unfinished files of the version."""
        kept, name = find(run), _new_name()
        made = self._workspace(name)
        names = [file for file in run.workspace.names() if is_kept(file, kept) and file != build_folders.PLAN_FILE]
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(lambda file: run.workspace.copy(file, made, file), names))
        folder = f"{VERSIONS_FOLDER}/{run.version}"
        self._store.delete(f"{folder}/{MANIFEST_FILE}")  # of a slow predecessor, which will notice
        self._store.abort_uploads(folder)
        files = {CLAIM_FILE, *(kept.files if kept else ())}
        self._store.remove_all(folder, but={f"{folder}/{file}" for file in files})
        if not self._store.exists(f"{folder}/{CLAIM_FILE}"):
            self._store.write_if(f"{folder}/{CLAIM_FILE}", self._claim, None)
        return replace(self._run(name, run.version), kept=kept)

    def remove_others(self, run: Run) -> None:
        """Also removes versions that other attempts at this build began."""
        for name in self._store.children(self._folder):
            if name != Path(run.folder).name:
                self._store.remove(f"{self._folder}/{name}", build_folders.PLAN_FILE)
        for version, holder in build_folders.uploads(self._store).items():
            if holder == self._key[:16] and version != run.version:
                build_folders.end_upload(self._store, version)
        for folder in build_folders.runs(self._scratch):
            build_folders.remove_run(folder)

    def remove(self, run: Run) -> None:
        build_folders.remove_run(run.folder)
        self._store.remove(f"{self._folder}/{Path(run.folder).name}", build_folders.PLAN_FILE)
        build_folders.end_upload(self._store, run.version)


def begin(
    output: str,
    building: str,
    build_key: str,
    pieces: Sequence[Piece],
    is_doubtful: Callable[[Reject], bool] = lambda reject: False,
) -> Run:
    """Begins an attempt with fitting finished work, or empty, under the output's lease. Raises: OSError, UserError."""
    place = (LocalPlace if is_local(output) else BucketPlace)(output, building, build_key)
    digest = hashlib.sha256(json.dumps(pieces).encode()).hexdigest()
    fitting, taken = list[Run](), None
    for run in place.runs():
        if (reports.read_report(run.workspace, PLAN) or {}).get("chunks") == digest:
            names = (name for folder in ("rejects", *PASSES) for name in run.workspace.names(folder))
            rejects = reports.read_rejects(run.workspace, [name for name in names if name.endswith(".jsonl")])
            if not any(map(is_doubtful, rejects)):
                fitting.append(run)
    if fitting:
        most = max(fitting, key=lambda run: len(run.workspace.names("reports")))
        chunks = sum(source >= 0 for source, *_ in pieces)  # the others mark what fits no other command
        taken = place.take_over(most, lambda run: finished_work(run, chunks))
    run = taken or place.new_run()
    reports.write_report(run.workspace, PLAN, {"chunks": digest, "version": run.version})
    place.remove_others(run)
    shutil.rmtree(Path(run.folder, "scratch"), ignore_errors=True)
    if not is_local(output):  # readers of the bucket may not read this machine's cache
        Path(run.folder).mkdir(0o700, parents=True, exist_ok=True)
    for name in reports.FOLDERS:
        Path(run.folder, name).mkdir(parents=True, exist_ok=True)
    return run


def finished_work(run: Run, chunks: int) -> Kept | None:
    """Returns the finished work of an attempt; None unless all chunks were read."""
    analysis = reports.read_report(run.workspace, f"reports/{reports.ANALYSIS}")
    read, expected = list[ChunkReport](), Counter[int]()
    for chunk in filter(None, reports.read_chunks(run.workspace, chunks)):
        read.append(replace(chunk, groups={}))
        expected.update(chunk.groups)
    if analysis is None or len(read) < chunks or analysis["export"] not in run.workspace.names("analysis"):
        return None
    sizes, found = run.shards.sizes(), zip(expected, reports.read_shards(run.workspace, expected), strict=True)
    shards = {group: shard.small for group, shard in found if shard and shard.files.sizes.items() <= sizes.items()}
    groups = frozenset(expected.keys() - shards.keys())
    again = enumerate(reports.read_chunks(run.workspace, chunks)) if groups else ()  # together they fill the memory
    wanted = frozenset(number for number, chunk in again if chunk and groups & chunk.groups.keys())
    finished = [chunk for number, chunk in enumerate(read) if number not in wanted]
    built = Counts.sum(shard.counts for shard in shards.values())
    counts = {  # as `worker.read_chunk` and `build_shard` count
        "chunks": len(finished),
        "read": sum(chunk.read for chunk in finished),
        "refused": sum(chunk.rejected for chunk in finished),
        "left_out": sum(chunk.duplicates + chunk.forgotten for chunk in finished),
        "analyzed": 1,
        "written": sum(built.written_by_source.values()),
        "dropped": built.rejected,
    }
    return Kept(analysis["export"], shards, groups, wanted, counts)
