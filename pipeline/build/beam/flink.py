"""Runs jobs on Flink: by a job server of this process, with presets from what the cluster says.

A small job asks the workers for their versions; its counters are the answers.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import apache_beam as beam
from apache_beam import Pipeline
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.portable_runner import JobServiceHandle, PortableRunner

from recordmill.pipeline.build.beam.runner import Add, Runner, parse_options
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import raising_left_error
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.build.runners.doctor import SystemCheck, describe, versions
from recordmill.pipeline.build.runners.flink_cluster import EXCHANGES, FlinkCluster, option_names
from recordmill.pipeline.build.runners.flink_job import FlinkJob, job_name
from recordmill.pipeline.build.runners.job import Backup, IdleSlots, Rest, RunnerError, watched
from recordmill.pipeline.build.runners.worker_environment import worker_threads
from recordmill.pipeline.errors import UserError, did_you_mean

BACKUP = "-backup"
"""The end of a backup's name: whoever cancels the jobs whose names begin as the first one's cancels both."""
PIECES = 4  # the pieces of a backup for each slot that is idle: slots that become idle later take some of them
ELEMENTS = 64  # enough that every slot gets one
NAMESPACE = "doctor"


class FlinkRunner(Runner):
    """`--runner flink`: every job of an attempt has its own name, and the attempt's workers."""

    def __init__(self, options: RunOptions) -> None:
        super().__init__(_Submission(), parse_options(options.beam_options, passes_on=True), options.attempts)
        self._arguments = options.beam_options
        self._cluster = FlinkCluster(options.flink)
        self._build_key = self._attempt = ""
        self._listener, self._checks = Listener(), list[Callable[[], None]]()

    def begin(self, build_key: str, listener: Listener, checks: Sequence[Callable[[], None]]) -> None:
        """Prepares for an attempt; cancels the jobs that a dead driver of this build left."""
        self._build_key, self._listener, self._checks = build_key, listener, list(checks)
        self._attempt = secrets.token_hex(4)
        self._cluster.cancel_old_jobs(build_key, listener.on_note)

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[Pipeline]:
        """Returns a pipeline, which runs as a job of its own."""
        with raising_left_error(planned.workspace), self.job() as pipeline:
            yield pipeline

    def run(self, planned: PlannedBuild, add: Add, rest: Rest[Add]) -> bool:
        """Runs a job, and its backup on slots that become idle; ends both when one has finished."""
        name = job_name(self._build_key)
        idle = IdleSlots(lambda: self._cluster.rest.overview().free_slots, rest.count)

        def back_up(slots: int, check: Callable[[], None]) -> bool:
            if (add_rest := rest.find()) is None:
                return False
            self._listener.on_note(f"the rest of the job runs a second time, on idle slots: {slots:,}")
            options = self._options_of(f"{name}{BACKUP}", f"--parallelism={PIECES * slots}")
            job = FlinkJob(self._cluster.rest, f"{name}{BACKUP}")
            with watched(job, [*self._checks, check]), Pipeline(runner=_Submission(), options=options) as pipeline:
                add_rest(pipeline)
            return True

        backup = Backup(idle.due, back_up)
        with backup.beside(), raising_left_error(planned.workspace), self.job(name, backup.check) as pipeline:
            add(pipeline)
        return backup.has_begun

    @contextmanager
    def job(self, name: str = "", check: Callable[[], None] = lambda: None) -> Iterator[Pipeline]:
        """Returns the pipeline of a job, which is watched while it runs, and has ended in any case when the block has.

        Raises:
            JobFailedError: the job failed.
        """
        name = name or job_name(self._build_key)
        self._listener.on_stage("waiting for the Flink cluster")
        options = self._options_of(name)
        self._listener.on_stage("")
        job = FlinkJob(self._cluster.rest, name)
        self._listener.on_job(job)
        try:
            with watched(job, [*self._checks, check]), Pipeline(runner=self._runner, options=options) as pipeline:
                yield pipeline
        finally:
            self._listener.on_job(None)

    def __exit__(self, *error: object) -> None:
        self._cluster.stop()

    def _options_of(self, job: str, *more: str) -> PipelineOptions:
        """Returns Beam's options of a job, from the cluster's state now; `more` replace those that the user gave."""
        given = [*self._arguments, *more]
        options = parse_options(self._cluster.arguments(given, job, self._attempt), passes_on=True)
        portable = options.view_as(PortableOptions)
        if portable.job_endpoint is None:
            portable.job_endpoint = self._cluster.start()
        return options


class _Submission(PortableRunner):  # type: ignore[misc]
    """Submits to a job server; refuses options that neither Beam's Python side nor the job server knows."""

    def create_job_service_handle(self, job_service: object, options: PipelineOptions) -> JobServiceHandle:
        """Returns Beam's handle, after the check."""
        handle = super().create_job_service_handle(job_service, options)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        known = {option.name for option in handle.job_service.DescribePipelineOptions(request).options}
        known |= {*options.get_all_options(), EXCHANGES}
        for name in sorted(option_names(options._flags) - known):
            raise RunnerError(
                f"neither Apache Beam nor the job server has an option --{name}{did_you_mean(name, known, '--{}')}"
            )
        return handle


def worker_findings(options: RunOptions) -> list[SystemCheck]:
    """Runs the job; compares the versions of each kind of worker with those of this process."""
    try:
        with FlinkRunner(options) as runner:
            with runner.job() as pipeline:
                numbers = pipeline | "Numbers" >> beam.Create(range(ELEMENTS)) | "Spread" >> beam.Reshuffle()
                _ = numbers | "Answer" >> beam.Map(answer)
            answers = pipeline.result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    except UserError as error:
        return [SystemCheck("worker", str(error), is_ok=False)]
    found = sorted({counter.key.metric.name for counter in answers})
    return [SystemCheck("worker", text, text.startswith(describe(versions()))) for text in found] or [
        SystemCheck("worker", "no worker answered", is_ok=False)
    ]


def answer(number: int) -> int:
    """Counts under a name that is the answer."""
    Metrics.counter(NAMESPACE, f"{describe(versions())}, {worker_threads()} threads").inc()
    return number
