"""`recordmill verify --repair`: restores damaged or missing shards and indexes, byte for byte.

An index is made from its shard. A shard is rebuilt from the sources by the usual build job, which takes the version's
transform graph as the finished analysis and packs only the rows of damaged shards. The build key must be the same: the
spec, the inputs with their sizes and times, and the packages.
Files are replaced, each by one rename, only if every new file has the manifest's digest.
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
from recordmill.pipeline.build.beam.jobs import run_job
from recordmill.pipeline.build.beam.placement import place
from recordmill.pipeline.build.beam.runners import make_runner
from recordmill.pipeline.build.context.graph import pack_graph
from recordmill.pipeline.build.inputs.input_table import Listings, take_times
from recordmill.pipeline.build.plan.plan import BuildPlan, make_plan
from recordmill.pipeline.build.plan.planned_build import planned_build
from recordmill.pipeline.build.plan.under_way import check_unchanged
from recordmill.pipeline.build.worker.build_shard import write_empty_shard
from recordmill.pipeline.dataset.file_names import shown_paths
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Manifest, Shard
from recordmill.pipeline.dataset.paths import attempt_name, locate, path_within, write_atomically
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.reader.version_files import VersionFiles
from recordmill.pipeline.sources.files import StoreFiles
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.verify.files import check_file, check_graph, refuse
from recordmill.pipeline.verify.report import Findings, Verification
from recordmill.pipeline.verify.shards import ShardNumber, index_of, shard_numbers
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions import leases
from recordmill.pipeline.versions.build_folders import building_folder
from recordmill.pipeline.versions.files import replace_file
from recordmill.pipeline.versions.forgotten import read_forgotten
from recordmill.pipeline.versions.latest import latest_of
from recordmill.pipeline.versions.leases import Holder, Lease
from recordmill.pipeline.versions.stores.open_store import open_store


class RepairError(UserError):
    """A shard cannot be rebuilt, and none was replaced; the message says why, and the remedy."""


class Repaired(NamedTuple):
    """The outcome of a repair: the replaced files, and a line with the reason for each of the others."""

    files: tuple[str, ...]
    reasons: tuple[str, ...]


def repaired(report: Verification, spec: Spec | None) -> Verification:
    """Repairs a version on this machine if its report has problems, and verifies it again."""
    if report.is_whole:
        return report
    done = repair(Path(report.folder), report.manifest, report.findings, spec)
    return replace(verify(report.folder), repaired=done.files, unrepaired=done.reasons)


def repair(folder: Path, manifest: Manifest, findings: Findings, spec: Spec | None) -> Repaired:
    """Repairs the files with findings of a version in its dataset's folder; without `spec` only indexes."""
    numbers = shard_numbers(manifest)
    own = [number for number in numbers if _shard(manifest, number).version is None]
    files = {path: number for number in own for path in _files(manifest, number)}
    others = sorted(file for file in findings.counts if file not in files and file in manifest.files)
    reasons = [f"{file}: only a build makes it: build again, or copy it from elsewhere" for file in others]
    foreign = {path for number in numbers for path in shown_paths(_shard(manifest, number))} - files.keys()
    advice = "it is in another version's folder: repair that version, or build again"
    if manifest.adopted:
        advice = "it is an adopted file, never written here: restore it from a copy, or adopt it again"
    reasons += [f"{file}: {advice}" for file in sorted(findings.counts.keys() & foreign)]
    damaged = sorted({files[file] for file in findings.counts if file in files})
    shards = [number for number in damaged if findings.counts.keys() & {*_made_by_a_build(manifest, number)}]
    repaired: list[str] = []
    try:
        if damaged:
            with _held(folder, manifest) as lease:
                repaired += [_reindex(folder, manifest, number) for number in damaged if number not in shards]
                repaired += _rebuild(folder, manifest, spec, shards, lease) if shards else []
    except UserError as error:
        reasons.append(str(error))
    except OSError as error:
        reasons.append(f"{error.filename}: {error.strerror}: no other file was replaced")
    return Repaired(tuple(repaired), tuple(reasons))


def _shard(manifest: Manifest, shard: ShardNumber) -> Shard:
    split, number = shard
    return manifest.splits[split].shards[number]


def _files(manifest: Manifest, shard: ShardNumber) -> tuple[str, ...]:
    """Names the files of a shard that are the version's own: of an adopted one its index."""
    return _shard(manifest, shard).paths[1 if manifest.adopted else 0 :]


def _made_by_a_build(manifest: Manifest, shard: ShardNumber) -> Sequence[str]:
    """Names the files of a shard that its records do not give back: all but the index of offsets."""
    file, _, *packs = _shard(manifest, shard).paths
    return [file, *packs]


@contextmanager
def _held(folder: Path, manifest: Manifest) -> Iterator[Lease]:
    """Keeps other processes from building, and from removing the version."""
    if folder.parent.name != VERSIONS_FOLDER:
        raise RepairError(f"{folder} is not inside a dataset's {VERSIONS_FOLDER}/: repair the published version")
    locate(str(folder.parents[1]), f"{VERSIONS_FOLDER}/{folder.name}")  # refuses a link out of the dataset
    store = open_store(str(folder.parents[1]))
    with leases.hold(store, manifest.version, _busy) as lease, leases.hold(store, leases.BUILD, _busy):
        latest = latest_of(store)  # read under the lease: a prune marks first, then reads the leases
        if latest is not None and manifest.version in latest.removing:
            raise RepairError(f"the version {manifest.version} is being removed: no file was replaced")
        yield lease


def _busy(holder: Holder) -> NoReturn:
    raise RepairError(f"{holder} works on this version: try again later")


def _rebuild(
    folder: Path, manifest: Manifest, spec: Spec | None, shards: Sequence[ShardNumber], lease: Lease
) -> list[str]:
    if spec is None:
        raise RepairError(f"{_shard(manifest, shards[0]).file} is built from its sources: give --spec dataset.yaml")
    files = Listings(StoreFiles(BeamFiles()))
    take_times(spec, folder, files)
    output = str(folder.parents[1])
    live = LiveAnalysis(output, manifest) if ANALYSIS in manifest.provenance else None
    kept, forgotten_keys = names_kept_by(spec, folder, manifest), read_forgotten(open_store(output))
    plan = make_plan(spec, files)
    plan = replace(plan, given=replace(plan.given, inherited=Inherited(kept, live, forgotten=forgotten_keys)))
    _check_same(folder, manifest, plan)
    run = attempts.begin(output, building_folder(output), plan.build_key, plan.pieces)
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
    """Checks that the sources would give the same bytes, and that the graph is safe to load."""
    if plan.build_key != manifest.build_key:
        same = plan.inputs_sha256 == manifest.provenance.get("inputs_sha256")
        cause = "the spec, its files or the packages" if same else "the inputs"
        raise RepairError(f"{cause} changed since {manifest.version}, so it cannot be rebuilt: build a new version")
    refuse(check_graph(VersionFiles(folder), manifest, "transform_fn"))


def _build(folder: Path, manifest: Manifest, plan: BuildPlan, run: str, shards: Sequence[ShardNumber]) -> None:
    runner = make_runner()
    planned = planned_build(plan, run, StoreFiles(BeamFiles()), inline=False, threads=runner.threads)
    context = replace(planned, decisions=place(planned, plan.chunks, runner))
    groups = frozenset(plan.layout.group(split, number) for split, number in shards)
    export = pack_graph(planned.workspace, str(folder))
    run_job(replace(context, export=export, groups=groups), plan.chunks, (), runner)
    for shard in shards:
        if not planned.shards.exists(_shard(manifest, shard).file):  # the job skips shards without rows
            write_empty_shard(planned, *shard)


def _check_made(manifest: Manifest, made: Path, shards: Sequence[ShardNumber]) -> None:
    for shard in (_shard(manifest, number) for number in shards):
        findings = check_file(VersionFiles(made), shard.file, shard.bytes, shard.sha256)
        if findings.problems:
            raise RepairError(
                f"{shard.file} came out differently ({findings.problems[0].message}): no file was replaced; an image "
                "may have changed but not its time, or this machine computes other bits; build a new version"
            )


def _reindex(folder: Path, manifest: Manifest, number: ShardNumber) -> str:
    shard = _shard(manifest, number)
    made = path_within(folder, attempt_name(shard.index))
    write_atomically(made, index_of(VersionFiles(folder), shard))
    replace_file(made, path_within(folder, shard.index))
    return shard.index
