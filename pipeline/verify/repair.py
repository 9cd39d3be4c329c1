"""`recordmill verify --repair`: makes damaged or missing shards and indexes again, byte for byte.

An index is made from its shard. A shard is built again from its sources, by the job that builds a version, with the
version's own transform graph as the finished analysis; only the damaged shards' rows are packed. That needs the build's
key to be the same: the spec, the inputs with their sizes and times, and the packages.
Nothing is replaced unless every new file has the manifest's digest; then each is replaced by one rename.

>>> repair(Path("out/emoji/versions/20261120T120000Z-4f1c9a2e"), manifest, found, spec)  # doctest: +SKIP
Repaired(files=('emoji-train.tfrecord-00002-of-00004', 'emoji-train.index-00002-of-00004'), reasons=())
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from recordmill.pipeline.build.attempt import attempts
from recordmill.pipeline.build.base.inherited import Inherited
from recordmill.pipeline.build.base.live_analysis import ANALYSIS, LiveAnalysis, names_kept_by
from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.beam.placement import place
from recordmill.pipeline.build.beam.runners import make_runner
from recordmill.pipeline.build.beam.write_shards import run_job
from recordmill.pipeline.build.context.graph import pack_graph
from recordmill.pipeline.build.inputs.listings import Listings, take_times
from recordmill.pipeline.build.plan.plan import BuildPlan, make_plan
from recordmill.pipeline.build.plan.planned_build import planned_build
from recordmill.pipeline.build.plan.under_way import check_unchanged
from recordmill.pipeline.dataset.file_names import inner_paths
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Manifest, Shard
from recordmill.pipeline.dataset.paths import attempt_name, locate, path_within, write_atomically
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.reader.version_files import VersionFiles
from recordmill.pipeline.sources.files import StoreFiles
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.verify.files import check_file, check_graph, refuse
from recordmill.pipeline.verify.report import Findings
from recordmill.pipeline.verify.shards import ShardNumber, index_of, shard_numbers
from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.build_folders import building_folder
from recordmill.pipeline.versions.files import replace_file
from recordmill.pipeline.versions.forgotten import read_forgotten
from recordmill.pipeline.versions.latest import latest_of
from recordmill.pipeline.versions.leases import Holder, Lease
from recordmill.pipeline.versions.stores.open_store import open_store


class RepairError(UserError):
    """A shard cannot be made again, and none was replaced. The message says why, and what to do."""


class Repaired(NamedTuple):
    """The outcome of a repair."""

    files: tuple[str, ...]
    """The files that were replaced."""
    reasons: tuple[str, ...]
    """A line for each that was not, with the reason."""


def repair(folder: Path, manifest: Manifest, findings: Findings, spec: Spec | None) -> Repaired:
    """Repairs the damage that a verification found.

    Args:
        folder: the version's, in its dataset's folder on this machine.
        manifest: its manifest.
        findings: its problems.
        spec: the dataset's; None if only indexes are to be repaired, which needs no source.

    Returns:
        the files that were replaced, and why others were not.
    """
    numbers = shard_numbers(manifest)
    own = [number for number in numbers if _shard(manifest, number).version is None]
    files = {path: number for number in own for path in _files(manifest, number)}
    others = sorted(file for file in findings.counts if file not in files and file in manifest.files)
    reasons = [f"{file}: only a build makes it: build again, or copy it from elsewhere" for file in others]
    foreign = {path for number in numbers for path in inner_paths(_shard(manifest, number))} - files.keys()
    advice = "it is in another version's folder: repair that version, or build again"
    reasons += [f"{file}: {advice}" for file in sorted(findings.counts.keys() & foreign)]
    damaged = sorted({files[file] for file in findings.counts if file in files})
    shards = [number for number in damaged if _shard(manifest, number).file in findings.counts]
    repaired: list[str] = []
    try:
        if damaged:
            with _held(folder, manifest) as lease:
                repaired += [_reindex(folder, manifest, number) for number in damaged if number not in shards]
                repaired += _rebuild(folder, manifest, spec, shards, lease) if shards else []
    except UserError as error:
        reasons.append(str(error))
    except OSError as error:
        reasons.append(f"{error.filename}: {error.strerror}: nothing more was replaced")
    return Repaired(tuple(repaired), tuple(reasons))


def _shard(manifest: Manifest, shard: ShardNumber) -> Shard:
    split, number = shard
    return manifest.splits[split].shards[number]


def _files(manifest: Manifest, shard: ShardNumber) -> tuple[str, str]:
    return _shard(manifest, shard).file, _shard(manifest, shard).index


@contextmanager
def _held(folder: Path, manifest: Manifest) -> Iterator[Lease]:
    """Keeps other processes from removing the version, and from building, meanwhile."""
    if folder.parent.name != VERSIONS_FOLDER:
        raise RepairError(f"{folder} is not a version in a dataset's folder: repair it where it was published")
    locate(str(folder.parents[1]), f"{VERSIONS_FOLDER}/{folder.name}")  # a link out of the dataset may be read alone
    store = open_store(str(folder.parents[1]))
    with leases.hold(store, manifest.version, _busy) as lease, leases.hold(store, leases.BUILD, _busy):
        latest = latest_of(store)  # after the lease is taken: a prune marks first, and then reads the leases
        if latest is not None and manifest.version in latest.removing:
            raise RepairError(f"the version {manifest.version} is being removed: nothing was replaced")
        yield lease


def _busy(holder: Holder) -> NoReturn:
    raise RepairError(f"{holder} works on this version: try again when it is done")


def _rebuild(
    folder: Path, manifest: Manifest, spec: Spec | None, shards: Sequence[ShardNumber], lease: Lease
) -> list[str]:
    if spec is None:
        raise RepairError(f"{_shard(manifest, shards[0]).file} is made of its sources: give --spec dataset.yaml")
    files = Listings(StoreFiles(BeamFiles()))
    take_times(spec, folder, files)
    output = str(folder.parents[1])
    live = LiveAnalysis(output, manifest) if ANALYSIS in manifest.provenance else None
    kept, forgotten_keys = names_kept_by(spec, folder, manifest), read_forgotten(open_store(output))
    plan = make_plan(spec, files)
    plan = replace(plan, given=replace(plan.given, inherited=Inherited(kept, live, forgotten=forgotten_keys)))
    _check_same(folder, manifest, plan)
    building = building_folder(str(folder.parents[1]))
    run = attempts.begin(str(folder.parents[1]), building, plan.build_key, plan.pieces)
    try:
        _build(folder, manifest, plan, run.folder, shards)
        check_unchanged(plan, files)
        made = Path(run.folder, "version")
        _check_made(manifest, made, shards)
        lease.check()
        replaced = [file for shard in shards for file in _files(manifest, shard)]
        for file in replaced:
            replace_file(made / file, path_within(folder, file))
    finally:
        run.remove()
    return replaced


def _check_same(folder: Path, manifest: Manifest, plan: BuildPlan) -> None:
    """Checks that the sources would give the same bytes, by a graph that may be loaded."""
    if plan.build_key != manifest.build_key:
        same = plan.inputs_sha256 == manifest.provenance.get("inputs_sha256")
        cause = "the spec, its files or the packages are" if same else "the inputs are"
        raise RepairError(f"{cause} not those of {manifest.version}: its shards cannot be made again; build anew")
    refuse(check_graph(VersionFiles(folder), manifest, "transform_fn"))


def _build(folder: Path, manifest: Manifest, plan: BuildPlan, run: str, shards: Sequence[ShardNumber]) -> None:
    runner = make_runner()
    planned = planned_build(plan, run, StoreFiles(BeamFiles()), inline=False, threads=runner.threads)
    context = replace(planned, decisions=place(planned, plan.chunks, runner))
    layout = plan.layout
    groups = {layout.group(split, number) for split, number in shards}
    export = pack_graph(planned.workspace, str(folder))
    run_job(replace(context, export=export, groups=frozenset(groups)), plan.chunks, (), runner)
    for file, index in (_files(manifest, shard) for shard in shards):
        if not planned.shards.exists(file):  # the job makes no shard without rows
            with ShardWriter(file, index, planned.shards.create) as writer:
                writer.write([])


def _check_made(manifest: Manifest, made: Path, shards: Sequence[ShardNumber]) -> None:
    for shard in (_shard(manifest, number) for number in shards):
        findings = check_file(VersionFiles(made), shard.file, shard.bytes, shard.sha256)
        if findings.problems:
            raise RepairError(
                f"{shard.file} was built again and is another ({findings.problems[0].message}): nothing was replaced; "
                "an image may have changed without its time, or another machine gives other bits; build anew"
            )


def _reindex(folder: Path, manifest: Manifest, number: ShardNumber) -> str:
    """Writes the index of an undamaged shard; returns its path in the version."""
    shard = _shard(manifest, number)
    made = path_within(folder, attempt_name(shard.index))
    write_atomically(made, index_of(VersionFiles(folder), shard))
    replace_file(made, path_within(folder, shard.index))
    return shard.index
