"""One build, from its plan to the published version.

A build may end at any moment, and the next build of the same spec and inputs continues its work
(`pipeline.build.attempts`).
"""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from recordmill.pipeline.build import attempts
from recordmill.pipeline.build.beam.filesystem import BeamFiles, use_options
from recordmill.pipeline.build.beam.graph import run_job
from recordmill.pipeline.build.beam.pre_passes import install_user_code, run_pre_passes
from recordmill.pipeline.build.beam.runners import Runner, make_runner
from recordmill.pipeline.build.class_ids import gone, id_changes
from recordmill.pipeline.build.context.graph_inputs import input_specs
from recordmill.pipeline.build.descriptions import describe_features
from recordmill.pipeline.build.disk_failures import disk_error
from recordmill.pipeline.build.free_space import check_free_space
from recordmill.pipeline.build.input_listing import InputsChangedError, Listings, check_unchanged
from recordmill.pipeline.build.plan import BuildPlan, pieces, planned_build
from recordmill.pipeline.build.preparation import (
    Prepared,
    Published,
    live_names,
    prepare,
    published_before,
    version_of,
    waiting,
)
from recordmill.pipeline.build.publish import SERVING_FOLDER, publish
from recordmill.pipeline.build.results import Results, collect
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.dataset.manifest import version_folder
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.rejects import Reject
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.build_folders import building_folder, remove_run
from recordmill.pipeline.versions.leases import Lease
from recordmill.pipeline.versions.prune import sweep
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_location, open_store
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.tensorflow.serving import export_serving


class NothingMendedError(UserError):
    """A repeated build rejects the same rows as the version that it repeats."""


def build(
    spec: Spec,
    output: str,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    listener: Listener = Listener(),  # noqa: B008 - frozen
    prepared: Prepared | None = None,
) -> Published:
    """Builds as the public `pipeline.build.entry.build` does, after the frameworks are loaded.

    `prepared` is the plan of these sources, if it is made already (`pipeline.build.preparation`).
    """
    runner = make_runner(options.runner, options.processes, options.beam_options)
    use_options(runner.options)
    prepared = prepared or prepare(spec, output, options, BeamFiles())
    plan, files = prepared.plan, prepared.files
    building = building_folder(output, options.work)
    published = published_before(output, plan, options)
    while published is None:
        note_wait = lambda holder: listener.on_note(waiting(holder))  # noqa: E731
        with leases.hold(open_store(output), plan.build_key[:16], note_wait) as lease:
            now = replace(plan, kept=live_names(spec, output))  # meanwhile a version may have given ids
            published = published_before(output, now, options)
            if published is None and now.build_key == plan.build_key:
                attempt = _Attempt(plan, output, building, files, runner, options, listener, lease)
                published = attempt.publish()
        plan = now
    with suppress(UserError, OSError):  # the version is published; the next build sweeps
        sweep(output, building)
    return published


@dataclass(frozen=True)
class _Attempt:
    """One attempt at a build, by the process that holds its lease."""

    plan: BuildPlan
    output: str
    building: str
    files: Listings
    runner: Runner
    options: RunOptions
    listener: Listener
    lease: Lease

    def publish(self) -> Published:
        """Continues an earlier attempt, or begins anew, and publishes."""
        run = self._begin()
        try:
            results = self._run_jobs(run)
            self._check_mended(results)
            published = self._publish(results)
        except Exception as error:
            cause = self._cause(error, run)
            if cause is error:
                raise
            raise cause from error
        remove_run(run.folder)
        return published

    def _begin(self) -> attempts.Run:
        try:
            run = attempts.begin(self.building, self.plan.build_key, pieces(self.plan), self._was_away)
        except OSError as error:
            message = f"the output {self.output} cannot be written: {error.strerror}: {error.filename}"
            raise OutputError(message) from None
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

    def _run_jobs(self, run: attempts.Run) -> Results:
        """Runs what an earlier attempt left to do: the passes before the job, and the job."""
        plan, kept, chunks = self.plan, run.kept, self.plan.chunks
        planned = planned_build(
            plan,
            run.folder,
            BeamFiles(),
            inline=not self.runner.is_local,
            threads=self.runner.threads,
            isolated=self.options.isolated,
        )
        note = check_free_space(plan, planned, kept.bytes if kept else 0)
        if note is not None:
            self.listener.on_note(note)
        self.listener.on_plan(plan, planned)
        context = run_pre_passes(planned, chunks, self.runner)
        if kept is not None:
            context = replace(context, export=kept.export, groups=kept.groups)
            chunks = [chunk for chunk in chunks if chunk.index in kept.chunks]
        install_user_code(context)  # the serving model is made of the same operations, also where no job is left
        if chunks:
            run_job(context, chunks, self.runner)
        self.listener.on_stage("comparing the sources with those that were read")
        check_unchanged(plan, self.files)
        return collect(plan, context)

    def _check_mended(self, results: Results) -> None:
        """Refuses to publish a repeated build whose rejects are the same."""
        before = version_of(self.output, self.plan)
        digest = hashlib.sha256(results.rejects_jsonl).hexdigest()
        if before is not None and digest in [file["sha256"] for file in before.rejects["files"]]:
            raise NothingMendedError(
                f"the {len(results.rejects):,} rows that {before.version} rejected are rejected again: nothing is "
                "mended, so nothing is published"
            )

    def _publish(self, results: Results) -> Published:
        features, context = describe_features(results), results.context
        descriptions = {name: description for name, (_, description) in features.items()}
        serving = os.path.join(context.path("version"), SERVING_FOLDER)
        self.listener.on_stage("saving the serving model")
        export_serving(results.export, descriptions, input_specs(context), context.schema.label, serving)
        self._note_ids(results, {name: description for name, (_, description) in features.items()})
        self.listener.on_publish()
        self.listener.on_stage("writing digests and the manifest")
        published = Published(*publish(results, self.output, features, self.lease, self._check_ids), is_new=True)
        for name in (name for name, split in published.manifest.splits.items() if not split.records):
            self.listener.on_note(f"the split '{name}' has no records")
        return published

    def _note_ids(self, results: Results, features: Mapping[str, Description]) -> None:
        """Notes which ids are new, which have moved, and which no longer stand for anything."""
        labels: Counter[int] = Counter()
        for report in results.shards.values():
            labels.update({int(id_): count for id_, count in report.get("label_counts", {}).items()})
        notes = list(gone(self.plan.kept, self.plan.spec.label, results.statistics, labels))
        with suppress(UserError):  # a damaged version is no reason to build none
            if live := publishing.live_manifest(self.output):
                folder = version_folder(open_location(self.output), live.version)
                notes += id_changes(live, folder, features, Path(results.export))
        for note in notes:
            self.listener.on_note(note)

    def _check_ids(self) -> None:
        """Refuses to publish over another version's ids. Raises: OutputError."""
        if live_names(self.plan.spec, self.output) != self.plan.kept:
            raise OutputError(f"a version of {self.output} with other classes became live meanwhile: build again")

    def _cause(self, error: Exception, run: attempts.Run) -> Exception:
        """The true cause of an error, if it is known, as one line for the user; otherwise the error itself."""
        if not run.is_there() and self.lease.name not in leases.holders(open_store(self.output)):
            output = Path(run.folder).parents[2]
            remove_run(run.folder)  # a library may have made it again
            with suppress(OSError):
                output.rmdir()
            return OutputError(f"{output} is gone: it was moved or removed in mid-build, and nothing was published")
        try:
            self.lease.check()
            run.give_up()
            check_unchanged(self.plan, self.files)
        except UserError as cause:
            if isinstance(cause, InputsChangedError):  # rows may have been rejected because files were away
                remove_run(run.folder)
            return cause
        if isinstance(error, NothingMendedError):  # the next repetition must not keep these rejects
            remove_run(run.folder)
        return disk_error(error, run.folder) or error
