"""`recordmill verify --repair`: shards and indexes that are damaged or missing are made again, byte for byte.

An index is made of its shard. A shard is built once more from its sources, by the job that builds a version, with the
version's own transform graph as the finished analysis; only these shards' rows are packed. This is done where the
build's key is the same: the spec, the inputs with their sizes and times, and the packages are those of the build.
Nothing is replaced unless every file that was made has the manifest's digest; then each is replaced by one rename.

>>> repair(Path("out/emoji/versions/20261120T120000Z-4f1c9a2e"), manifest, found, spec)  # doctest: +SKIP
Repaired(files=('emoji-train.tfrecord-00002-of-00004', 'emoji-train.index-00002-of-00004'), reasons=())
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from recordmill.pipeline.build import attempts
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.beam.graph import run_job
from recordmill.pipeline.build.beam.pre_passes import run_pre_passes
from recordmill.pipeline.build.beam.runners import make_runner, worker_threads
from recordmill.pipeline.build.input_listing import Listings, check_unchanged
from recordmill.pipeline.build.plan import BuildPlan, make_plan, planned_build
from recordmill.pipeline.dataset.atomic_files import write_atomically
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Manifest, Shard
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.verify.files import VersionFiles, check_file
from recordmill.pipeline.verify.findings import Findings
from recordmill.pipeline.verify.graph_safety import check_graph, refuse
from recordmill.pipeline.verify.shards import index_of
from recordmill.pipeline.versions import latest_file, leases
from recordmill.pipeline.versions.build_folders import building_folder, remove_run
from recordmill.pipeline.versions.leases import Holder, Lease
from recordmill.pipeline.versions.stores.open_store import open_store


class RepairError(UserError):
    """A shard cannot be made again, and none was replaced. The message says why, and what to do."""


@dataclass(frozen=True)
class Damage:
    """What of a version can be made again."""

    shards: tuple[tuple[str, int], ...]
    """Splits, and the numbers of their shards: the file, its index, or both are damaged."""
    others: tuple[str, ...]
    """Files that are damaged and are made by a build alone."""


class Repaired(NamedTuple):
    """What a repair did."""

    files: tuple[str, ...]
    """Those that were replaced."""
    reasons: tuple[str, ...]
    """Why others were not, a line each."""


def repair(folder: Path, manifest: Manifest, found: Findings, spec: Spec | None) -> "Repaired":
    """Repairs what a verification found.

    Args:
        folder: the version's, in its dataset's folder on this machine.
        manifest: its manifest.
        found: its problems.
        spec: the dataset's; None where only indexes are to be repaired, which need no source.

    Returns:
        the files that were replaced, and why others were not.
    """
    damage = find_damage(manifest, found)
    lost = [f"{file}: a build alone makes it: build again, or copy it from elsewhere" for file in damage.others]
    if not damage.shards:
        return Repaired((), tuple(lost))
    repaired: list[str] = []
    shards = [place for place in damage.shards if _shard(manifest, place).file in found.told]
    try:
        with _held(folder, manifest) as lease:
            repaired += [_reindex(folder, manifest, place) for place in damage.shards if place not in shards]
            if shards:
                repaired += _rebuild(folder, manifest, spec, shards, lease)
    except UserError as error:
        lost.append(str(error))
    except OSError as error:
        lost.append(f"{error.filename}: {error.strerror}: nothing more was replaced")
    return Repaired(tuple(repaired), tuple(lost))


def find_damage(manifest: Manifest, found: Findings) -> Damage:
    """Sorts a version's problems by what can be done about them."""
    places = [(name, number) for name, split in manifest.splits.items() for number in range(len(split.shards))]
    files = {path: place for place in places for path in _files(_shard(manifest, place))}
    shards = {files[file] for file in found.told if file in files}
    others = sorted(file for file in found.told if file not in files and file in manifest.files)
    return Damage(tuple(sorted(shards)), tuple(others))


def _shard(manifest: Manifest, place: tuple[str, int]) -> Shard:
    split, number = place
    return manifest.splits[split].shards[number]


def _files(shard: Shard) -> tuple[str, str]:
    return shard.file, shard.index


@contextmanager
def _held(folder: Path, manifest: Manifest) -> Iterator[Lease]:
    """Keeps others from removing the version, and from building the same meanwhile."""
    if folder.parent.name != VERSIONS_FOLDER:
        raise RepairError(f"{folder} is no version in a dataset's folder: a version is repaired where it was published")
    store = open_store(str(folder.parents[1]))
    with ExitStack() as held:
        lease = held.enter_context(leases.hold(store, manifest.version, _busy))
        held.enter_context(leases.hold(store, manifest.build_key[:16], _busy))
        latest = latest_file.read(store)  # only now: a prune marks first, and looks who holds what after it
        if latest is not None and manifest.version in latest.removing:
            raise RepairError(f"the version {manifest.version} is being removed: nothing was replaced")
        yield lease


def _busy(holder: Holder) -> NoReturn:
    raise RepairError(f"{holder} works on this version: try again when it is done")


def _rebuild(
    folder: Path, manifest: Manifest, spec: Spec | None, shards: Sequence[tuple[str, int]], lease: Lease
) -> list[str]:
    """Makes shards and their indexes again; gives the files."""
    if spec is None:
        raise RepairError(f"{_shard(manifest, shards[0]).file} is made of its sources: give --spec dataset.yaml")
    files = Listings(BeamFiles())
    plan = make_plan(spec, files)
    _check_same(folder, manifest, plan)
    building = building_folder(str(folder.parents[1]))
    pieces = [(chunk.source, chunk.file, chunk.bytes) for chunk in plan.chunks]
    run = attempts.begin(building, plan.build_key, pieces)
    try:
        _build(folder, manifest, plan, run.folder, shards)
        check_unchanged(plan, files)
        made = Path(run.folder, "version")
        _check_made(manifest, made, shards)
        lease.check()
        replaced = [file for place in shards for file in _files(_shard(manifest, place))]
        for file in replaced:
            os.replace(made / file, folder / file)
    finally:
        remove_run(run.folder)
    return replaced


def _check_same(folder: Path, manifest: Manifest, plan: BuildPlan) -> None:
    """Makes sure that the sources would give the same bytes, by a graph that may be loaded."""
    if plan.build_key != manifest.build_key:
        same = plan.inputs_sha256 == manifest.provenance.get("inputs_sha256")
        what = "the spec, its files or the packages are" if same else "the inputs are"
        raise RepairError(f"{what} not those of {manifest.version}: its shards cannot be made again; build anew")
    refuse(check_graph(VersionFiles(folder), manifest, "transform_fn"))


def _build(folder: Path, manifest: Manifest, plan: BuildPlan, run: str, shards: Sequence[tuple[str, int]]) -> None:
    """Builds shards into a run's folder."""
    runner, options, _ = make_runner("local", 1, ())
    work = planned_build(plan, run, BeamFiles(), inline=False, threads=worker_threads(True, 1))
    work = run_pre_passes(work, plan.chunks, runner, options)
    layout = plan.layout
    groups = {int(layout.first_group[layout.splits.index(split)]) + number for split, number in shards}
    for shard in (_shard(manifest, place) for place in shards):
        with ShardWriter(*(str(Path(run, "version", file)) for file in _files(shard))) as writer:
            writer.write([])  # what a shard without rows is; others come in its place
    run_job(replace(work, export=str(folder), groups=frozenset(groups)), plan.chunks, runner, options)


def _check_made(manifest: Manifest, made: Path, shards: Sequence[tuple[str, int]]) -> None:
    for place in shards:
        shard = _shard(manifest, place)
        found = check_file(VersionFiles(made), shard.file, shard.bytes, shard.sha256)
        if found.problems:
            raise RepairError(
                f"{shard.file} was built again and is another ({found.problems[0].message}): nothing was replaced; a "
                "picture may have changed without its time, or another machine gives other bits; build anew"
            )


def _reindex(folder: Path, manifest: Manifest, place: tuple[str, int]) -> str:
    """Writes the index of a shard that is whole; gives its path in the version."""
    shard = _shard(manifest, place)
    made = index_of(VersionFiles(folder), shard)
    write_atomically(str(folder / shard.index), made)
    return shard.index
