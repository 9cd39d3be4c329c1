"""One build from its spec to the published version: the driver's side."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from pipeline import storage
from pipeline.descriptions import Described, describe_features
from pipeline.files import BeamFiles, use_options
from pipeline.graph_inputs import input_specs
from pipeline.job import run_job
from pipeline.manifest import Manifest, version_folder
from pipeline.plan import CHUNK_BYTES, BuildPlan, make_plan, make_work
from pipeline.preparation import look_first
from pipeline.publish import publish
from pipeline.reports import attempt_name
from pipeline.results import Results, collect
from pipeline.runners import make_runner, worker_threads
from pipeline.spec import Spec
from transforms.serving import export_serving


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


def build(
    spec: Spec,
    output: str,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    on_plan: Callable[[BuildPlan, str], None] = lambda plan, folder: None,
    on_publish: Callable[[], None] = lambda: None,
) -> Published:
    """Builds a dataset and publishes it; a build that was published already is only made live.

    Args:
        spec: what to build.
        output: the dataset's folder.
        options: where and how.
        on_plan: called with the plan and the build's folder before the work begins.
        on_publish: called when all is done but the publishing.

    Raises:
        RunnerError, SourceError, OutputError, NothingToPublishError, ReconcileError: one clear line each.
    """
    storage.check_output(output)
    storage.check_name(output, spec.name)
    runner, beam_options, local = make_runner(options.runner, options.processes, options.beam_options)
    use_options(beam_options)
    files = BeamFiles()
    plan = make_plan(spec, files, options.chunk_bytes)
    done = storage.find_version(output, plan.build_key)
    if done is not None:
        if storage.live_version(output) != done.version:
            storage.make_live(output, done.version)
        return Published(str(version_folder(output, done.version)), done, is_new=False)
    folder = storage.begin(output, plan.build_key)
    try:
        on_plan(plan, folder)
        work = make_work(plan, folder, files, inline=not local, threads=worker_threads(local, options.processes))
        work = look_first(work, plan.chunks, runner, beam_options)
        run_job(work, plan.chunks, runner, beam_options)
        results = collect(plan, work)
        features = describe_features(results)
        serving = _export_serving(results, features)
        on_publish()
        published, manifest = publish(results, output, features, serving)
    finally:
        storage.finish(folder)
    return Published(published, manifest, is_new=True)


def _export_serving(results: Results, features: Described) -> str:
    folder = os.path.join(results.work.path("analysis"), attempt_name("serving"))
    described = {name: description for name, (_, description) in features.items()}
    export_serving(results.export, described, input_specs(results.work), results.work.rows.label, folder)
    return folder
