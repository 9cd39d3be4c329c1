"""One build from its spec to the published version: the driver's side.

A build may end at any moment, and the same build again goes on: `pipeline.build.attempts` says with what.
"""

import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from recordmill.pipeline.build import attempts
from recordmill.pipeline.build.beam.filesystem import BeamFiles, use_options
from recordmill.pipeline.build.beam.graph import run_job
from recordmill.pipeline.build.beam.pre_passes import install_user_code, run_pre_passes
from recordmill.pipeline.build.beam.runners import make_runner, worker_threads
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph_inputs import input_specs
from recordmill.pipeline.build.descriptions import describe_features
from recordmill.pipeline.build.disk_failures import disk_error
from recordmill.pipeline.build.free_space import check_free_space
from recordmill.pipeline.build.input_listing import InputsChangedError, Listings, check_unchanged
from recordmill.pipeline.build.plan import CHUNK_BYTES, BuildPlan, make_plan, planned_build
from recordmill.pipeline.build.publish import SERVING_FOLDER, publish
from recordmill.pipeline.build.results import Results, collect
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.python.source import UserRows
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.build_folders import building_folder, remove_run
from recordmill.pipeline.versions.leases import Holder, Lease
from recordmill.pipeline.versions.prune import sweep
from recordmill.pipeline.versions.stores.open_store import OutputError, open_store
from recordmill.transforms.tensorflow.serving import export_serving


@dataclass(frozen=True)
class Published:
    """What a build gave: the version's folder and manifest, and whether this build made it."""

    folder: str
    manifest: Manifest
    is_new: bool


@dataclass(frozen=True)
class RunOptions:
    """Where and how a build runs."""

    runner: str = "local"
    """`local`, or the name of one of Beam's runners."""
    processes: int = 1
    """Worker processes of the local runner."""
    beam_options: tuple[str, ...] = ()
    """Beam's own options, as on a command line."""
    chunk_bytes: int = CHUNK_BYTES
    """About how many bytes of rows are read at a time."""
    work: str | None = None
    """The local folder in which builds for an output at a URL work; by default in the user's cache."""
    again: bool = False
    """Whether to build though this very build was published: rows that it rejected are good now."""
    isolated: bool = False
    """Whether each picture is decoded first in a process that may crash."""


@dataclass(frozen=True)
class Listener:
    """Who is told how far a build is."""

    on_plan: Callable[[BuildPlan, PlannedBuild], None] = lambda plan, work: None
    """The work begins."""
    on_note: Callable[[str], None] = lambda note: None
    """Something that a person should know."""
    on_publish: Callable[[], None] = lambda: None
    """All is done but the publishing."""


def build(
    spec: Spec,
    output: str,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    listener: Listener = Listener(),  # noqa: B008 - frozen
) -> Published:
    """Builds a dataset and publishes it; a build that was published already is only made live.

    Args:
        spec: what to build.
        output: the dataset's folder, or its URL.
        options: where and how.
        listener: who is told how far it is.

    Raises:
        UserError: one clear line: a RunnerError, SourceError, OutputError, NoSpaceError, DiskError, LeaseLostError,
            InputsChangedError, TooManyRejectsError, NothingToPublishError, ReconcileError. What was live stays live,
            and the finished work is kept for the next build.
    """
    publishing.check_output(output)
    publishing.check_name(output, spec.name)
    runner, beam_options, local = make_runner(options.runner, options.processes, options.beam_options)
    use_options(beam_options)
    files = Listings(BeamFiles())
    plan = make_plan(spec, files, options.chunk_bytes)
    building = building_folder(output, options.work)
    published = _published(output, plan, options)
    if published is None:
        store = open_store(output)
        with leases.hold(store, plan.build_key[:16], lambda holder: listener.on_note(_waiting(holder))) as lease:
            attempt = _Attempt(plan, output, building, files, runner, beam_options, local, options, listener, lease)
            published = _published(output, plan, options) or attempt.publish()
    with suppress(UserError, OSError):  # what is published is published; the next build sweeps
        sweep(output, building)
    return published


def _waiting(holder: Holder) -> str:
    return f"waiting for {holder}, which is at the same build"


def _published(output: str, plan: BuildPlan, options: RunOptions) -> Published | None:
    """The version that this very build made before; live again, if it was not."""
    done = None if options.again else publishing.find_version(output, plan.build_key)
    if done is None:
        return None
    if publishing.live_version(output) != done.version:
        publishing.make_live(output, done.version)
    return Published(publishing.version_path(output, done.version), done, is_new=False)


@dataclass(frozen=True)
class _Attempt:
    """One attempt at a build, by the process that holds its lease."""

    plan: BuildPlan
    output: str
    building: str
    files: Listings
    runner: PipelineRunner
    beam_options: PipelineOptions
    local: bool
    options: RunOptions
    listener: Listener
    lease: Lease

    def publish(self) -> Published:
        """Builds what an earlier attempt left, and publishes."""
        run = self._begin()
        try:
            published = self._publish(self._results(run))
        except Exception as error:
            told = self._told(error, run)
            if told is error:
                raise
            raise told from error
        remove_run(run.folder)
        return published

    def _begin(self) -> attempts.Run:
        pieces = [(chunk.source, chunk.file, chunk.bytes) for chunk in self.plan.chunks]
        if any(isinstance(source, UserRows) and not source.inputs for source in self.plan.spec.source):
            pieces.append((-1, uuid.uuid4().hex, 0))  # nobody knows what it reads, and whether it changed: nothing fits
        try:
            run = attempts.begin(self.building, self.plan.build_key, pieces, self._was_away)
        except OSError as error:
            raise OutputError(
                f"the output {self.output} cannot be written: {error.strerror}: {error.filename}"
            ) from None
        if run.kept is not None:
            self.listener.on_note(f"going on with an earlier build: {run.kept} are kept")
        return run

    def _was_away(self, reject: Reject) -> bool:
        """Whether a row was rejected because of a file that was not there and is there now."""
        if reject.path is None or not self.files.has(reject.path):
            return False
        try:
            self.files.open(reject.path).close()
        except OSError:
            return False
        return True

    def _results(self, run: attempts.Run) -> Results:
        plan, kept, chunks = self.plan, run.kept, self.plan.chunks
        threads = worker_threads(self.local, self.options.processes)
        isolated = self.options.isolated
        planned = planned_build(
            plan, run.folder, BeamFiles(), inline=not self.local, threads=threads, isolated=isolated
        )
        note = check_free_space(plan, planned, kept.bytes if kept else 0)
        if note is not None:
            self.listener.on_note(note)
        self.listener.on_plan(plan, planned)
        work = run_pre_passes(planned, chunks, self.runner, self.beam_options)
        install_user_code(work)
        if kept is not None:
            work = replace(work, export=kept.export, groups=kept.groups)
            chunks = [chunk for chunk in chunks if chunk.index in kept.chunks]
        if chunks:
            run_job(work, chunks, self.runner, self.beam_options)
        check_unchanged(self.plan, self.files)
        return collect(plan, work)

    def _publish(self, results: Results) -> Published:
        features, work = describe_features(results), results.work
        described = {name: description for name, (_, description) in features.items()}
        serving = os.path.join(work.path("version"), SERVING_FOLDER)
        export_serving(results.export, described, input_specs(work), work.schema.label, serving)
        self.listener.on_publish()
        return Published(*publish(results, self.output, features, self.lease), is_new=True)

    def _told(self, error: Exception, run: attempts.Run) -> Exception:
        """What a person is told of an error: its true cause, where that is known."""
        if not run.is_there() and self.lease.name not in leases.holders(open_store(self.output)):
            place = Path(run.folder).parents[2]
            remove_run(run.folder)  # a library may have made it again
            with suppress(OSError):
                place.rmdir()
            return OutputError(f"{place} is gone: it was moved or removed in mid-build, and nothing was published")
        try:
            self.lease.check()
            run.give_up()
            check_unchanged(self.plan, self.files)
        except InputsChangedError as changed:
            remove_run(run.folder)  # rows may have been rejected for what was only away
            return changed
        except UserError as lost:
            return lost
        return disk_error(error, run.folder) or error
