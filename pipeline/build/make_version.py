"""Makes a version by its plan: the jobs, their results, the version's files, and its publication.

A build may end at any moment; the next one of the same spec and inputs continues it (`pipeline.build.attempt`).
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from recordmill.pipeline.build.attempt import attempts
from recordmill.pipeline.build.attempt.failures import disk_error
from recordmill.pipeline.build.attempt.reject_limits import RejectLimits
from recordmill.pipeline.build.base.inherited import read_spans
from recordmill.pipeline.build.base.live_analysis import LearnedAnewError
from recordmill.pipeline.build.beam.filesystem import use_options
from recordmill.pipeline.build.beam.jobs import is_counted, learn, run_job
from recordmill.pipeline.build.beam.placement import place
from recordmill.pipeline.build.beam.runner import Runner
from recordmill.pipeline.build.beam.runners import make_runner
from recordmill.pipeline.build.beam.steps import probe_workers
from recordmill.pipeline.build.context.arrow_files import FileDigests
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.graph import input_specs, install_user_code
from recordmill.pipeline.build.context.reports import Progress
from recordmill.pipeline.build.inputs.input_table import INPUTS_FILE, TableInMaking
from recordmill.pipeline.build.plan.plan import BuildPlan, check_free_space
from recordmill.pipeline.build.plan.planned_build import planned_build
from recordmill.pipeline.build.plan.under_way import Build, InputsChangedError, check_unchanged
from recordmill.pipeline.build.publish.assemble import SERVING_FOLDER, assemble, describe_features
from recordmill.pipeline.build.publish.same_version import find_version, same_as_live
from recordmill.pipeline.build.results.results import Results, collect
from recordmill.pipeline.build.run_options import Listener, Stage
from recordmill.pipeline.build.runners.job import JobFailedError
from recordmill.pipeline.compare.distributions import drift_lines
from recordmill.pipeline.compare.figures import breach_lines
from recordmill.pipeline.compare.gate import gate_entry
from recordmill.pipeline.compare.versions import id_changes, names_gone
from recordmill.pipeline.dataset.counts import Counts
from recordmill.pipeline.dataset.manifest import LATEST_FILE
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.build_folders import building_folder, end_uploads
from recordmill.pipeline.versions.outcome import Published, undone
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import is_local, open_store
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.tensorflow.transform_graph import export_serving


class NothingMendedError(UserError):
    """A repeated build rejects the same rows again."""

    exit_code = ExitCode.UP_TO_DATE


def make_version(build: Build, plan: BuildPlan, lease: leases.Lease) -> Published:
    """Builds and publishes a version under the output's lease. Raises: LearnedAnewError: kept spans are outdated."""
    with make_runner(build.options) as runner:
        use_options(lambda: runner.options)
        return _Attempt(build, plan, lease, runner).publish()


@dataclass(frozen=True)
class _Attempt:
    """One attempt at a build, by the process that holds the output's lease."""

    build: Build
    plan: BuildPlan
    lease: leases.Lease
    runner: Runner

    @property
    def listener(self) -> Listener:
        return self.build.listener

    def publish(self) -> Published:
        """Publishes; retries a failed job with the finished work."""
        for number in range(1, self.runner.attempts):
            try:
                return self._try()
            except JobFailedError as error:
                self.listener.on_note(f"attempt {number} of {self.runner.attempts}: {error}")
        return self._try()

    def _try(self) -> Published:
        self.runner.begin(self.plan.build_key, self.listener, [self.lease.check])
        run = self._begin()
        inputs = self.plan.inputs if self.plan.limit is None else ()  # a trial reads no whole file
        remembered = self.build.remembered
        names = [name for each, span in self.plan.spans.kept.items() for name in span.members or (each,)]
        kept = remembered.of_spans(names) if names and remembered else None
        files = self.build.files
        table = TableInMaking(inputs, files, files.times, remembered, kept)
        try:
            with table:
                results = self._run_jobs(run, table)
                self._check_mended(results)
                published = self._publish(results, run.version, table)
        except Exception as error:
            cause = self._cause(error, run)
            if cause is error:
                raise
            raise cause from error
        run.remove()
        return published

    def _begin(self) -> attempts.Run:
        building = building_folder(self.build.output, self.build.options.work)
        try:
            run = attempts.begin(self.build.output, building, self.plan.build_key, self.plan.pieces, self._was_away)
        except OSError as error:
            message = f"the output {self.build.output} cannot be written: {error.strerror}: {error.filename}"
            raise OutputError(message) from None
        if run.kept is not None:
            self.listener.on_note(f"going on with an earlier build: {run.kept} are kept")
        return run

    def _was_away(self, reject: Reject) -> bool:
        """Whether a row was rejected because of a missing file, now found."""
        reader = self.plan.sources[self.plan.chunks[reject.chunk].source].reader
        roots = {reader.root(self.build.files), reader.image_root(self.build.files)} if reject.path else ()
        for path in (f"{root}/{reject.path}" for root in roots):
            with suppress(OSError):
                if self.build.files.has(path):
                    self.build.files.open(path).close()
                    return True
        return False

    def _run_jobs(self, run: attempts.Run, inputs: TableInMaking) -> Results:
        """Runs the remaining jobs: the look at the rows, and the writing of the shards."""
        planned, spans = self._plan_work(run), self.plan.spans
        kept_spans = read_spans(self.build.output, spans.base, spans.kept) if spans.base else {}
        self.listener.on_plan(self.plan, planned)
        if not self.runner.is_local and self.runner.probes_workers and run.kept is None:
            probe_workers(planned, self.runner)
        context = self._look(run, planned)
        live = self.plan.live
        if live is not None and not live.is_frozen:
            message = f"the graph is unchanged: {len(kept_spans)} spans keep their shards of"
            self.listener.on_note(f"{message} {live.manifest.version}")
        self._write(run, context)
        self.listener.on_stage(Stage.COMPARE)
        inputs.finish(FileDigests(planned.workspace))  # before the check, which proves it
        check_unchanged(self.plan, self.build.files)
        return collect(self.plan, context, kept_spans)

    def _plan_work(self, run: attempts.Run) -> PlannedBuild:
        """Returns the build for the workers. Raises: NoSpaceError."""
        planned = planned_build(
            self.plan,
            run.folder,
            self.build.files.files,
            inline=not self.runner.is_local,
            threads=self.runner.threads,
            isolated=self.build.options.isolated,
            workspace=run.workspace,
            shards=run.shards,
        )
        kept, is_here = run.kept.bytes if run.kept else 0, is_local(planned.shards.url)
        note = check_free_space(self.plan, run.folder, holds_shards=is_here, holds_rows=not planned.inline, kept=kept)
        if note is not None:
            self.listener.on_note(note)
        if run.kept is not None:
            Progress(planned.progress, "kept").add(**run.kept.counts)
        return planned

    def _look(self, run: attempts.Run, planned: PlannedBuild) -> PlannedBuild:
        """Places the rows, learns the graph's values, and makes the graph."""
        plan, kept = self.plan, run.kept
        planned = replace(planned, decisions=place(planned, plan.chunks, self.runner))
        export, temp = kept.export if kept else None, self.build.options.temp
        try:
            context = learn(planned, plan.chunks, self.runner, export, temp, plan.live)
        except UserError:
            RejectLimits(plan, planned)()  # perhaps too many rows were rejected to learn from
            raise
        return replace(context, groups=kept.groups) if kept else context

    def _write(self, run: attempts.Run, context: PlannedBuild) -> None:
        kept, chunks = run.kept, self.plan.chunks
        if kept is not None:
            chunks = [chunk for chunk in chunks if chunk.index in kept.chunks]
        install_user_code(context)  # the serving model needs the operations, too
        finished = sorted(kept.shards) if kept else []
        self.listener.on_stage(Stage.WRITE)
        if chunks or (finished and not is_counted(context)):
            run_job(context, chunks, finished, self.runner)

    def _check_mended(self, results: Results) -> None:
        before = find_version(self.build, self.plan)
        digest = hashlib.sha256(results.rejects_jsonl).hexdigest()
        if before is not None and digest in [file.get("sha256") for file in before.rejects.get("files", [])]:
            raise NothingMendedError(
                f"the {len(results.rejects):,} rows that {before.version} rejected are rejected again: mend them; "
                "no version is published"
            )

    def _publish(self, results: Results, version: str, inputs: TableInMaking) -> Published:
        descriptions, context = describe_features(results), results.context
        serving = os.path.join(context.assembled, SERVING_FOLDER)
        self.listener.on_stage(Stage.SERVE)
        export_serving(results.export, descriptions, input_specs(context), context.schema.label, serving)
        self._note_ids(results, descriptions)
        self.listener.on_publish()
        self.listener.on_stage(Stage.PUBLISH)
        manifest = assemble(
            results, self.build.output, descriptions, version, {INPUTS_FILE: inputs.feather()}, self.listener.on_note
        )
        if same_as_live(self.build.base, manifest):
            return self._stay()
        gate = {} if manifest.trial else gate_entry(self.plan.spec, self.build.base, Path(context.assembled), manifest)
        breaches = breach_lines(gate) + undone(self.build.base, manifest)
        for line in gate.get("not_compared", ()):
            self.listener.on_note(f"the gate did not compare {line}")
        manifest = replace(manifest, gate=gate)
        manifest = publishing.publish(self.build.base, context.assembled, manifest, self.lease, live=not breaches)
        if not breaches:
            self.build.remember(manifest, self.plan.source_key, self.build.listing_key)
        for name in (name for name, split in manifest.splits.items() if not split.records):
            self.listener.on_note(f"the split '{name}' has no records")
        spans = {"built_spans": tuple(self.plan.spans.built), "kept_spans": tuple(self.plan.spans.kept)}
        return Published.of(self.build.base, manifest, breaches, is_new=True, **spans)

    def _stay(self) -> Published:
        """Keeps the live version, which has the same bytes."""
        published = self.build.live()
        end_uploads(self.build.output, self.plan.build_key)
        self.build.remember(published.manifest, self.build.sighting)
        self.listener.on_note("the result equals the live version, byte for byte: no version is published")
        return published

    def _note_ids(self, results: Results, features: Mapping[str, Description]) -> None:
        labels = Counts.sum(results.counts.values()).label_counts
        kept = {} if self.plan.frozen else self.plan.given.inherited.names  # a frozen analysis is of other rows
        notes = list(names_gone(kept, self.plan.spec.label, results.statistics, labels))
        with suppress(UserError):  # the live version may be damaged
            notes += drift_lines(results.drift)
            if live := self.build.base.live:
                notes += id_changes(live, self.build.base.folder, features, Path(results.export))
        for note in notes:
            self.listener.on_note(note)

    def _cause(self, error: Exception, run: attempts.Run) -> Exception:
        """Returns the known cause of an error, as one line for the user; otherwise the error itself."""
        if self._is_gone(run):
            run.remove()  # a library may have recreated it
            with suppress(OSError):
                os.rmdir(self.build.output)
            url = open_store(self.build.output).url
            return OutputError(f"{url} is gone: it was moved or removed in mid-build; no version was published")
        try:
            self.lease.check()
            run.give_up()
            check_unchanged(self.plan, self.build.files)
        except OutputError:  # the network is down: report the error itself
            return disk_error(error, run.folder) or error
        except UserError as cause:
            if isinstance(cause, InputsChangedError):  # rows may have been rejected because files were missing
                run.remove()
            return cause
        if isinstance(error, NothingMendedError | LearnedAnewError):  # useless to the next attempt
            run.remove()
        return disk_error(error, run.folder) or error

    def _is_gone(self, run: attempts.Run) -> bool:
        """Whether the output was moved or removed; False if it cannot be reached."""
        try:
            store = open_store(self.build.output)
            if run.is_there() or store.exists(LATEST_FILE):  # without its work: another process has the lease
                return False
            return self.lease.name not in leases.holders(store)
        except OutputError:
            return False
