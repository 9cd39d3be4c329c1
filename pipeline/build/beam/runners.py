"""The runners of a build by their names: the local one, with private servers, and Flink, by a job server.

Beam 2.77 opens its servers on all interfaces without authentication, and they run code for their clients. So the
workers of `--processes N` find their driver at Unix sockets in a folder of mode 0700, and the worker pool of
`environment_type=LOOPBACK`, which runners call by TCP, listens on the loopback address.
"""

import itertools
import json
import re
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, PortableOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
from apache_beam.runners.portability.portable_runner import JobServiceHandle, PortableRunner
from apache_beam.runners.runner import create_runner
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms.environments import SubprocessSDKEnvironment
from google.protobuf import json_format, text_format

from recordmill.pipeline.build.beam.runner import JobPipeline, Runner, parse_options
from recordmill.pipeline.build.context.build_context import PlannedBuild
from recordmill.pipeline.build.context.reports import DeadWorkerError, raising_left_error
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.build.runners import child_process, worker_environment
from recordmill.pipeline.build.runners.doctor import SystemCheck, versions
from recordmill.pipeline.build.runners.flink_cluster import EXCHANGES, FlinkCluster, option_names
from recordmill.pipeline.build.runners.flink_job import FlinkJob, job_name
from recordmill.pipeline.build.runners.job import RunnerError, watched
from recordmill.pipeline.errors import UserError, did_you_mean
from recordmill.pipeline.parallel import cores

Listen = Callable[[str], int]
FIT = re.compile(r"[\w/.+-]{1,70}", re.ASCII)
"""Temporary folders short enough for a socket: its path has at most 103 bytes on macOS, and gRPC reads it as a URL."""
SHORT = "/tmp"  # noqa: S108 - for a folder of mode 0700 in it
NAMES = {"DirectRunner": "local", "DataflowRunner": "dataflow"}  # Beam's names for our runners


def make_runner(options: RunOptions = RunOptions()) -> Runner:  # noqa: B008 - frozen
    """Makes the runner that a build's options name.

    `local` is Beam's FnApiRunner, also by the name `DirectRunner`, which Beam replaces by Prism if it finds its binary.
    Raises: RunnerError: an option loses data or does not exist.
    """
    name = NAMES.get(options.runner, options.runner)
    beam_options = parse_options(options.beam_options, passes_on=name == "flink")
    if beam_options.view_as(DirectOptions).direct_running_mode == "multi_threading":
        raise RunnerError(
            "direct_running_mode=multi_threading is refused: Apache Beam 2.77 silently loses records in it "
            "(it clears its data buffer without a lock). Leave it out: a build uses every core in one process; "
            "or run separate processes with `--processes N`"
        )
    if name == "local":
        direct = beam_options.view_as(DirectOptions)
        direct.direct_running_mode = "in_memory"  # `multi_processing` would run Beam's own workers, which outlive it
        direct.direct_num_workers = processes = options.processes or 1
        threads = worker_threads(processes)
        environment = SubprocessSDKEnvironment.from_command_string(str(threads)) if processes > 1 else None
        runner = Runner(PrivateFnApiRunner(environment), beam_options, is_local=True)
        runner.threads = threads
        return runner
    if (options.processes or 1) > 1:
        raise RunnerError(f"--processes is the local runner's: give {name} its parallelism after --")
    if name == "flink":
        return FlinkRunner(options)
    if name == "dataflow":
        from recordmill.pipeline.build.beam.dataflow import DataflowRunner  # loads Google's clients

        return DataflowRunner(options)
    try:
        return Runner(create_runner(name), beam_options, options.attempts)
    except (ValueError, ImportError, AttributeError) as error:
        reason, ours = str(error).splitlines()[0], "'local', 'flink', 'dataflow'"
        raise RunnerError(f"unknown runner '{name}': use {ours} or one of Beam's: {reason}") from None


def worker_threads(processes: int) -> int:
    """Returns the number of threads of a local worker's transform graph: its share of the cores."""
    return max(1, cores() // processes)


@worker_handlers.WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class WorkerProcessHandler(worker_handlers.SubprocessSdkWorkerHandler):  # type: ignore[misc]
    """Runs a worker as a child of this process; a thread waits for it and raises `DeadWorkerError` if it dies.

    The environment's command is the worker's number of threads.
    Replaces the handler of Apache Beam 2.77, which has a shell start the worker, and reports a death as a RuntimeError
    with the status in its text and without the process.
    """

    def start_worker(self) -> None:  # from the thread that waits for it: `child_process` ends with that thread
        self.worker_thread = threading.Thread(name="run_worker", target=self._run)
        self.worker_thread.start()

    def _run(self) -> None:
        services = {"CONTROL": self.control_api_service_descriptor(), "LOGGING": self.logging_api_service_descriptor()}
        variables = {  # for `apache_beam.runners.worker.sdk_worker_main`
            **{f"{name}_API_SERVICE_DESCRIPTOR": text_format.MessageToString(url) for name, url in services.items()},
            "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
            "WORKER_ID": self.worker_id,
            worker_environment.THREADS: self._worker_command_line.decode(),
        }
        process = child_process.start_worker()
        process.communicate(json.dumps(variables).encode())
        if process.returncode:
            raise DeadWorkerError(process.pid, process.returncode)

    def port_from_worker(self, port: str) -> str:  # a service's URL: `PrivateGrpcServer` calls it a port
        return port


def _with_globals(function: Any, **names: object) -> Any:
    """Copies a function of Beam with some global names replaced; Beam itself stays unchanged."""
    scope = {**function.__globals__, **names}
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)


def _grpc(listen: Callable[[Listen, str], int | str]) -> SimpleNamespace:
    """Replaces the module `grpc` by one with servers that listen by `listen`, and call its result their port."""

    def server(*arguments: Any, **options: Any) -> grpc.Server:
        made = grpc.server(*arguments, **options)
        made.add_insecure_port = partial(listen, made.add_insecure_port)
        return made

    return SimpleNamespace(server=server)


class PrivateGrpcServer(worker_handlers.GrpcServer):  # type: ignore[misc]
    """Beam's services for workers, each at a Unix socket; its "ports" are URLs, valid until `close`."""

    def __init__(self, *arguments: Any) -> None:
        folder = None if FIT.fullmatch(tempfile.gettempdir()) else SHORT
        self._folder = tempfile.TemporaryDirectory(prefix="recordmill-", dir=folder)
        self._numbers = itertools.count()
        _with_globals(worker_handlers.GrpcServer.__init__, grpc=_grpc(self._listen))(self, *arguments)

    def _listen(self, listen: Listen, _: str) -> str:
        url = f"unix:{self._folder.name}/{next(self._numbers)}"
        listen(url)
        return url

    def close(self) -> None:
        super().close()
        self._folder.cleanup()


class _Manager(worker_handlers.WorkerHandlerManager):  # type: ignore[misc]
    get_worker_handlers = _with_globals(
        worker_handlers.WorkerHandlerManager.get_worker_handlers, GrpcServer=PrivateGrpcServer
    )


class PrivateFnApiRunner(FnApiRunner):  # type: ignore[misc]
    """Beam's local runner, without an open port."""

    run_stages = _with_globals(FnApiRunner.run_stages, WorkerHandlerManager=_Manager)


BeamFnExternalWorkerPoolServicer.start = classmethod(
    _with_globals(  # `start` tells runners `localhost`, too
        BeamFnExternalWorkerPoolServicer.start.__func__,
        grpc=_grpc(lambda listen, address: listen(address.replace("[::]", "localhost"))),
    )
)

NAMESPACE = "doctor"


class FlinkRunner(Runner):
    """`--runner flink`: every job of an attempt has its own name, and the attempt's workers."""

    def __init__(self, options: RunOptions) -> None:
        super().__init__(_Submission(), parse_options(options.beam_options, passes_on=True), options.attempts)
        self._arguments = options.beam_options
        self._cluster = FlinkCluster(options.flink)
        self._attempt = ""

    def begin(self, build_key: str, listener: Listener, checks: Sequence[Callable[[], None]]) -> None:
        super().begin(build_key, listener, checks)
        self._attempt = secrets.token_hex(4)
        self._cluster.cancel_old_jobs(build_key, listener.on_note)

    @contextmanager
    def pipeline(self, planned: PlannedBuild) -> Iterator[beam.Pipeline]:
        with raising_left_error(planned.workspace), self.job() as pipeline:
            yield pipeline

    @contextmanager
    def job(self) -> Iterator[beam.Pipeline]:
        """Yields a job's pipeline, and watches the job until it ends with the block. Raises: JobFailedError."""
        name = job_name(self._build_key)
        self._listener.on_stage("waiting for the Flink cluster")
        options = parse_options(self._cluster.arguments(self._arguments, name, self._attempt), passes_on=True)
        portable = options.view_as(PortableOptions)
        if portable.job_endpoint is None:
            portable.job_endpoint = self._cluster.start()
        self._listener.on_stage("")
        job = FlinkJob(self._cluster.rest, name)
        self._listener.on_job(job)
        try:
            with watched(job, self._checks), JobPipeline(self._runner, options) as pipeline:
                yield pipeline
        finally:
            self._listener.on_job(None)

    def __exit__(self, *error: object) -> None:
        self._cluster.stop()


class _Submission(PortableRunner):  # type: ignore[misc]
    """Submits to a job server; refuses options that neither Beam's Python side nor the job server knows."""

    def create_job_service_handle(self, job_service: object, options: PipelineOptions) -> JobServiceHandle:
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
    """Asks Flink's workers for their versions, by a small job with answers as its counters; compares them with ours."""
    try:
        with FlinkRunner(options) as runner:
            with runner.job() as pipeline:
                # enough numbers for every slot to get one
                numbers = pipeline | "Numbers" >> beam.Create(range(64)) | "Spread" >> beam.Reshuffle()
                _ = numbers | "Answer" >> beam.Map(answer)
            answers = pipeline.result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    except UserError as error:
        return [SystemCheck("worker", str(error), is_ok=False)]
    found = sorted({counter.key.metric.name for counter in answers})
    return [SystemCheck("worker", text, text.startswith(versions())) for text in found] or [
        SystemCheck("worker", "no worker answered", is_ok=False)
    ]


def answer(number: int) -> int:
    """Counts under the answer as the name."""
    Metrics.counter(NAMESPACE, f"{versions()}, {worker_environment.worker_threads()} threads").inc()
    return number
