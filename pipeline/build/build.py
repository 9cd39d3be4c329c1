"""One build, from its spec to the published version.

TensorFlow and Beam, which take five to ten seconds to load, come late: a mistake in the spec, a source or the output is
reported before, and a build with nothing to do ends without them.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from recordmill.pipeline.build.base.live_analysis import LearnedAnewError
from recordmill.pipeline.build.beam.filesystem import BeamFiles, use_options
from recordmill.pipeline.build.inputs.input_table import Listings
from recordmill.pipeline.build.journal import Journal
from recordmill.pipeline.build.plan.plan import check_free_space, make_plan
from recordmill.pipeline.build.plan.under_way import Build
from recordmill.pipeline.build.publish.same_version import EarlierVersions
from recordmill.pipeline.build.run_options import Listener, RunOptions, Stage
from recordmill.pipeline.build.runners.child_process import waiting_workers
from recordmill.pipeline.build.runners.flink_cluster import FlinkCluster, find_jar, option_names
from recordmill.pipeline.build.runners.worker_environment import without_cloud_clients
from recordmill.pipeline.errors import ExitCode, UserError, code_of
from recordmill.pipeline.json_values import check_types
from recordmill.pipeline.private_folder import private_temporary_files
from recordmill.pipeline.safe_text import summary_of
from recordmill.pipeline.sources.files import Files, StoreFiles
from recordmill.pipeline.spec.model import Spec, load_spec
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.build_folders import building_folder, builds
from recordmill.pipeline.versions.prune import remove_held_back, sweep
from recordmill.pipeline.versions.publishing import GateBreachedError, Published
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import is_local, open_store

STORE_OPTIONS = ("--s3_", "--gcs_", "--no_auth", "--gcp_oauth_scopes", "--impersonate_service_account")
"""Beam's options for object stores."""


def build(
    spec: Spec | str | Path,
    output: str | Path,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    listener: Listener = Listener(),  # noqa: B008 - frozen
) -> Published:
    """Builds a dataset and publishes it; an earlier version of the same inputs is only made live.

    `spec` is the dataset, or its file. A version that differs too much from the live one, by the spec's `gate`, is
    published and held back. Every end goes to the output's history (`pipeline.build.journal`). Meanwhile all threads of
    this process make their temporary files in a private folder, removed with the process (`pipeline.private_folder`).

    Raises: GateBreachedError: the version is held back; the error's `published` has its folder and manifest. The same
    build raises it again, without repeating the work, until the version is approved or rejected. UserError: one clear
    line: a RunnerError, SourceError, OutputError, NoSpaceError, DiskError, LeaseLostError, InputsChangedError,
    TooManyRejectsError, NothingToPublishError, NothingMendedError, ReconcileError, or a WorkerError. The live version
    stays live, and the next build continues the finished work.
    """
    check_types(locals(), build.__annotations__)
    spec, output = spec if isinstance(spec, Spec) else load_spec(spec), str(output)
    journal = Journal(output, options)
    try:
        published = run(spec, output, options, journal.follow(listener, spec.name))
    except Exception as error:
        message = str(error) if isinstance(error, UserError) else summary_of(error)
        for warning in journal.end(code_of(error), message):
            listener.on_note(warning)
        raise
    reason = published.reason(output) if published.breaches else None
    for warning in journal.end(published.exit_code, reason, published):
        listener.on_note(warning)
    if reason is not None:
        raise GateBreachedError(reason, published)
    return published


def run(spec: Spec, output: str, options: RunOptions, listener: Listener, *, alone: bool = False) -> Published:
    """Builds as `build`, without journal; returns a version held back. `alone`: no other build uses Beam here."""
    if options.runner == "flink":
        FlinkCluster(options.flink)  # raises if its address is missing
        if "job_endpoint" not in option_names(options.beam_options):
            find_jar(options.flink)
    publishing.check_output(output)
    building = building_folder(output, options.work)
    open_store(output).check_conditions()
    files = Listings(source_files(options.beam_options, passes_on=options.runner == "flink"))
    build = Build(spec, output, files, options, listener)
    if (published := build.done) is None:
        with _leased(build) as (build, lease):
            published = build.done or _publish(build, lease, alone=alone)
    with suppress(UserError, OSError):  # the version is published; the next build sweeps
        if published.exit_code is ExitCode.UP_TO_DATE and not options.spans:
            remove_held_back(output, published.manifest.version)
        if published.is_new or is_local(output) or builds(building):  # in a bucket it takes a request a version
            sweep(output, building)
    return published


@contextmanager
def _leased(build: Build) -> Iterator[tuple[Build, leases.Lease]]:
    """Holds the output's lease; yields the build, begun again after others, and the lease. Removes an empty output."""
    output, waited_for = build.output, list[leases.Holder]()
    was_there = os.path.lexists(output)

    def wait(holder: leases.Holder) -> None:
        waited_for.append(holder)
        build.listener.on_note(f"waiting for {holder}, which builds in {output}")
        make_plan(build.spec, build.files, build.options)  # a mistake is reported at once, whatever the output holds

    try:
        with leases.hold(open_store(output), leases.BUILD, wait) as lease:
            build.listener.on_stage(Stage.PLAN)
            yield (build.again() if waited_for or not build.base.is_current() else build), lease
    finally:
        if is_local(output) and not was_there:
            with suppress(OSError):  # not empty
                os.rmdir(output)


def _publish(build: Build, lease: leases.Lease, *, alone: bool, keeps_spans: bool = True) -> Published:
    """Takes an earlier version of the same key, or makes one. Raises: OutputError, NoSpaceError."""
    live, options = build.base.live, build.options
    if live is not None and bool(live.trial) != (options.limit is not None):
        holds = f"all rows in {live.version}, and --limit builds some"
        if live.trial:
            holds = f"{live.version}, built with --limit"
        raise OutputError(f"the output {build.output} holds {holds}: give each an output of its own")
    plan = build.plan(keeps_spans=keeps_spans)
    if published := EarlierVersions(build, plan).take():
        return published
    building = building_folder(build.output, options.work)
    if options.runner == "local" and plan.build_key[:16] not in builds(building):  # else it may have finished shards
        run = os.path.join(building, plan.build_key[:16], "run")
        check_free_space(plan, run, holds_shards=is_local(build.output), holds_rows=True)
    build.listener.on_stage(Stage.LOAD)
    paths = (*plan.spec.paths(), build.output, options.temp or "", options.work or "")
    is_here = plan.given.code is None and options.runner == "local" and not options.beam_options  # code may open URLs
    is_here = is_here and not any("://" in path for path in paths)
    with private_temporary_files(), waiting_workers(plan.processes if plan.processes > 1 else 0):
        with without_cloud_clients() if alone and is_here else nullcontext():
            from recordmill.pipeline.build.make_version import make_version  # four seconds of CPU

        try:
            return make_version(build, plan, lease)
        except LearnedAnewError as changed:  # the kept spans are of another graph
            build.listener.on_note(str(changed))
    return _publish(build, lease, alone=alone, keeps_spans=False)


def source_files(beam_options: Sequence[str] = (), *, passes_on: bool = False) -> Files:
    """Opens sources' files: stores' without Beam, unless its options, maybe a job server's, configure them."""

    def parsed() -> Any:
        from recordmill.pipeline.build.beam.runner import parse_options

        return parse_options(beam_options, passes_on=passes_on)

    use_options(parsed)
    is_beams = any(option.startswith(STORE_OPTIONS) for option in beam_options)
    return BeamFiles() if is_beams else StoreFiles(BeamFiles())
