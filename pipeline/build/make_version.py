"""Makes a version by its plan: the jobs, their results, the version's files, and its publication.

A build may end at any moment; the next one of the same spec and inputs continues it (`pipeline.build.attempt`).
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from recordmill.pipeline.build.attempt import attempts
from recordmill.pipeline.build.attempt.failures import RejectLimits, disk_error
from recordmill.pipeline.build.base.live_analysis import LearnedAnewError, read_spans
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
from recordmill.pipeline.build.plan.plan import BuildPlan, check_free_space, planned_build
from recordmill.pipeline.build.plan.under_way import Build, InputsChangedError, check_unchanged
from recordmill.pipeline.build.publish.assemble import SERVING_FOLDER, assemble
from recordmill.pipeline.build.publish.described import Described, describe_features
from recordmill.pipeline.build.publish.same_version import EarlierVersions, same_as_live
from recordmill.pipeline.build.results.results import Results, collect
from recordmill.pipeline.build.run_options import Stage
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
from recordmill.pipeline.versions.publishing import Published, undone
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import is_local, open_store
from recordmill.transforms.engines.transform_graph import export_serving


class NothingMendedError(UserError):
    """A repeated build rejects the same rows again."""

    exit_code = ExitCode.UP_TO_DATE


def make_version(build: Build, plan: BuildPlan, lease: leases.Lease) -> Published:
    """Builds a version under the output's lease; retries a failed job. Raises: LearnedAnewError."""
    with make_runner(replace(build.options, processes=plan.processes)) as runner:
        use_options(lambda: runner.options)
        attempt = _Attempt(build, plan, lease, runner)
        for number in range(1, runner.attempts):
            try:
                return attempt.publish()
            except JobFailedError as error:
                build.listener.on_note(f"attempt {number} of {runner.attempts}: {error}")
        return attempt.publish()


@dataclass(frozen=True)
class _Attempt:
    """Attempts at a build, by the process that holds the output's lease."""

    build: Build
    plan: BuildPlan
    lease: leases.Lease
    runner: Runner

    def publish(self) -> Published:
        """Makes the version in a run, with the finished work of earlier ones, and publishes it."""
        build, plan = self.build, self.plan
        self.runner.begin(plan.build_key, build.listener, [self.lease.check])
        run = self._begin()
        inputs = plan.inputs if plan.limit is None else ()  # a trial reads no whole file
        names = [name for each, span in plan.spans.kept.items() for name in span.members or (each,)]
        kept = build.remembered.of_spans(names) if names and build.remembered else None
        try:
            with TableInMaking(inputs, build.files, build.files.times, build.remembered, kept) as table:
                results = self._run_jobs(run, table)
                published = self._publish(results, run.version, table.feather())
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
            self.build.listener.on_note(f"going on with an earlier build: {run.kept} are kept")
        return run

    def _was_away(self, reject: Reject) -> bool:
        """Whether a row was rejected because of a missing file, now found."""
        reader, files = self.plan.sources[self.plan.chunks[reject.chunk].source].reader, self.build.files
        roots = {reader.root(files), reader.image_root(files)} if reject.path else ()
        for path in (f"{root}/{reject.path}" for root in roots):
            with suppress(OSError):
                if files.has(path):
                    files.open(path).close()
                    return True
        return False

    def _run_jobs(self, run: attempts.Run, inputs: TableInMaking) -> Results:
        """Runs the remaining jobs: the look at the rows, and the writing of the shards. Raises: NoSpaceError."""
        build, plan, runner, kept = self.build, self.plan, self.runner, run.kept
        planned = planned_build(
            plan,
            run.folder,
            build.files.files,
            inline=not runner.is_local,
            threads=runner.threads,
            isolated=build.options.isolated,
            workspace=run.workspace,
            shards=run.shards,
        )
        is_here, done = is_local(planned.shards.url), kept.bytes if kept else 0
        if note := check_free_space(plan, run.folder, holds_shards=is_here, holds_rows=not planned.inline, kept=done):
            build.listener.on_note(note)
        if kept is not None:
            Progress(planned.progress, "kept").add(**kept.counts)
        kept_spans = read_spans(build.output, plan.spans.base, plan.spans.kept) if plan.spans.base else {}
        build.listener.on_plan(plan, planned)
        if not runner.is_local and runner.probes_workers and kept is None:
            probe_workers(planned, runner)
        context = self._look(planned, kept)
        if (live := plan.live) is not None and not live.is_frozen:
            unchanged = f"the graph is unchanged: {len(kept_spans)} spans keep their shards of {live.manifest.version}"
            build.listener.on_note(unchanged)
        install_user_code(context)  # the serving model needs the operations, too
        chunks = [chunk for chunk in plan.chunks if kept is None or chunk.index in kept.chunks]
        finished = sorted(kept.shards) if kept else []
        build.listener.on_stage(Stage.WRITE)
        if chunks or (finished and not is_counted(context)):
            run_job(context, chunks, finished, runner)
        build.listener.on_stage(Stage.COMPARE)
        inputs.finish(FileDigests(planned.workspace))  # before the check, which proves it
        check_unchanged(plan, build.files)
        return collect(plan, context, kept_spans)

    def _look(self, planned: PlannedBuild, kept: attempts.Kept | None) -> PlannedBuild:
        """Places the rows, learns the graph's values, and makes the graph."""
        plan = self.plan
        planned = replace(planned, decisions=place(planned, plan.chunks, self.runner))
        export = kept.export if kept else None
        try:
            context = learn(planned, plan.chunks, self.runner, export, self.build.options.temp, plan.live)
        except UserError:
            RejectLimits(plan, planned)()  # perhaps too many rows were rejected to learn from
            raise
        return replace(context, groups=kept.groups) if kept else context

    def _publish(self, results: Results, version: str, inputs: bytes) -> Published:
        """Assembles the version, lets the gate judge it, and publishes it. Raises: NothingMendedError."""
        build, plan, context, listener = self.build, self.plan, results.context, self.build.listener
        before, digest = EarlierVersions(build, plan).find(), hashlib.sha256(results.rejects_jsonl).hexdigest()
        if before is not None and digest in [file.get("sha256") for file in before.rejects.get("files", [])]:
            rows = f"the {len(results.rejects):,} rows that {before.version} rejected"
            raise NothingMendedError(f"{rows} are rejected again: mend them; no version is published")
        descriptions = describe_features(results)
        serving = os.path.join(context.assembled, SERVING_FOLDER)
        listener.on_stage(Stage.SERVE)
        export_serving(results.export, descriptions, input_specs(context), context.schema.label, serving)
        for note in self._changes_of_ids(results, descriptions):
            listener.on_note(note)
        listener.on_publish()
        listener.on_stage(Stage.PUBLISH)
        manifest = assemble(results, build.output, descriptions, version, {INPUTS_FILE: inputs}, listener.on_note)
        if same_as_live(build.base, manifest):
            end_uploads(build.output, plan.build_key)
            build.remember(build.live().manifest, build.sighting)
            listener.on_note("the result equals the live version, byte for byte: no version is published")
            return build.live()
        gate = {} if manifest.trial else gate_entry(plan.spec, build.base, Path(context.assembled), manifest)
        breaches = breach_lines(gate) + undone(build.base, manifest)
        for line in gate.get("not_compared", ()):
            listener.on_note(f"the gate did not compare {line}")
        manifest = replace(manifest, gate=gate)
        manifest = publishing.publish(build.base, context.assembled, manifest, self.lease, live=not breaches)
        if not breaches:
            build.remember(manifest, plan.source_key, build.listing_key)
        for name in (name for name, split in manifest.splits.items() if not split.records):
            listener.on_note(f"the split '{name}' has no records")
        spans = {"built_spans": tuple(plan.spans.built), "kept_spans": tuple(plan.spans.kept)}
        return Published.of(build.base, manifest, breaches, is_new=True, **spans)

    def _changes_of_ids(self, results: Results, features: Described) -> list[str]:
        """Says which names are gone, how far the rows drifted, and which ids changed."""
        labels = Counts.sum(results.counts.values()).label_counts
        kept = {} if self.plan.frozen else self.plan.given.inherited.names  # a frozen analysis is of other rows
        notes = list(names_gone(kept, self.plan.spec.label, results.statistics, labels))
        with suppress(UserError):  # the live version may be damaged
            notes += drift_lines(results.drift)
            if live := self.build.base.live:
                notes += id_changes(live, self.build.base.folder, features, Path(results.export))
        return notes

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
