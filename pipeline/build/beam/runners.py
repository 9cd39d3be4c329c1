"""The runners of a build by their names; the local one's workers end with their driver, and its servers are private.

Beam 2.77 opens its servers on all interfaces, and asks nobody who they are. A server that runs code for whoever
connects is for this user alone: the workers of `--processes N` find their driver at Unix sockets in a folder of mode
0700. A runner connects to the worker pool of `environment_type=LOOPBACK` by TCP, so that pool listens on the loopback
address.
"""

import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import grpc
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.portability import python_urns
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    GrpcServer,
    SubprocessSdkWorkerHandler,
    WorkerHandler,
    WorkerHandlerManager,
)
from apache_beam.runners.runner import PipelineRunner, create_runner
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.transforms.environments import SubprocessSDKEnvironment
from google.protobuf import json_format, text_format

from recordmill.pipeline.build.beam.flink import FlinkRunner
from recordmill.pipeline.build.beam.runner import Runner, parse_options
from recordmill.pipeline.build.context.reports import DeadWorkerError
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.runners import child_process
from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.parallel import cores

Listen = Callable[[str], int]
FIT = re.compile(r"[\w/.+-]{1,70}", re.ASCII)
"""Temporary folders that fit: a socket's path has at most 103 bytes on macOS, and gRPC reads it as a URL."""
SHORT = "/tmp"  # noqa: S108 - for a folder of mode 0700 in it
WORKER_COMMAND = shlex.join([sys.executable, "-P", child_process.__file__])
"""The command of a worker (`runners.child_process`), without its driver's number."""
NAMES = {"DirectRunner": "local", "DataflowRunner": "dataflow"}  # Beam's names for our runners


def make_runner(options: RunOptions = RunOptions()) -> Runner:  # noqa: B008 - frozen
    """Makes the runner that a build's options name.

    `local` is Beam's FnApiRunner, also by the name `DirectRunner`, which for Beam is Prism wherever its binary is.

    Raises:
        RunnerError: an option loses data or does not exist.
    """
    name = NAMES.get(options.runner, options.runner)
    beam_options = parse_options(options.beam_options, passes_on=name == "flink")
    direct = beam_options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_threading":
        raise RunnerError(
            "direct_running_mode=multi_threading is refused: Apache Beam 2.77 silently loses records in it "
            "(its data buffer is cleared without a lock). Leave it out: a build uses every core in one process; "
            "or run separate processes with `--processes N`"
        )
    if name != "local":
        if options.processes > 1:
            raise RunnerError(f"--processes is the local runner's: give {name} its parallelism after --")
        if name == "flink":
            return FlinkRunner(options)
        if name == "dataflow":
            from recordmill.pipeline.build.beam.dataflow import DataflowRunner  # loads Google's clients

            return DataflowRunner(options)
        return Runner(_beam_runner(name), beam_options, options.attempts)
    direct.direct_running_mode = "in_memory"  # `multi_processing` would run Beam's own workers, which outlive a driver
    direct.direct_num_workers = options.processes
    environment = SubprocessSDKEnvironment.from_command_string(WORKER_COMMAND) if options.processes > 1 else None
    runner = Runner(PrivateFnApiRunner(environment), beam_options, is_local=True)
    runner.threads = worker_threads(options.processes)
    return runner


def _beam_runner(name: str) -> PipelineRunner:
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        ours = "'local', 'flink', 'dataflow'"
        raise RunnerError(f"there is no runner '{name}': use {ours} or one of Beam's: {reason}") from None


def worker_threads(processes: int) -> int:
    """Returns the number of threads of a local worker's transform graph: its share of the cores."""
    return max(1, cores() // processes)


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class WorkerProcessHandler(SubprocessSdkWorkerHandler):  # type: ignore[misc]
    """Runs a worker as a child of this process; a thread waits for it and raises `DeadWorkerError` if it dies.

    The handler of Apache Beam 2.77, in whose place it is registered, has a shell start the worker, and reports a death
    as a RuntimeError with the status in its text and without the process.
    """

    def start_worker(self) -> None:
        """Starts the process from the thread that waits for it (`child_process` ends with that thread)."""
        self.worker_thread = threading.Thread(name="run_worker", target=self._run)
        self.worker_thread.start()

    def _run(self) -> None:
        command = [*shlex.split(self._worker_command_line.decode()), str(os.getpid())]
        process = subprocess.Popen(command, env=os.environ | self._environment())  # noqa: S603 - our own worker
        status = process.wait()
        if status:
            raise DeadWorkerError(process.pid, status)

    def port_from_worker(self, port: str) -> str:
        """Returns the URL of a service, which is what `PrivateGrpcServer` calls its port."""
        return port

    def _environment(self) -> dict[str, str]:
        """Makes the variables that `apache_beam.runners.worker.sdk_worker_main` reads."""
        services = {"CONTROL": self.control_api_service_descriptor(), "LOGGING": self.logging_api_service_descriptor()}
        return {
            **{f"{name}_API_SERVICE_DESCRIPTOR": text_format.MessageToString(url) for name, url in services.items()},
            "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
            "WORKER_ID": self.worker_id,
        }


def _with_globals(function: Any, **names: object) -> Any:
    """Copies a function of Beam, for which some global names mean something else; Beam itself stays as it is."""
    scope = {**function.__globals__, **names}
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)


def _grpc(listen: Callable[[Listen, str], int | str]) -> SimpleNamespace:
    """Stands in for the module `grpc`: its servers listen where `listen` says, and call what it returns their port."""

    def server(*arguments: Any, **options: Any) -> grpc.Server:
        made = grpc.server(*arguments, **options)
        made.add_insecure_port = partial(listen, made.add_insecure_port)
        return made

    return SimpleNamespace(server=server)


class PrivateGrpcServer(GrpcServer):  # type: ignore[misc]
    """Beam's services for workers, each at a Unix socket; its "ports" are URLs, which end with `close`."""

    def __init__(self, *arguments: Any) -> None:
        folder = None if FIT.fullmatch(tempfile.gettempdir()) else SHORT
        self._folder = tempfile.TemporaryDirectory(prefix="recordmill-", dir=folder)
        self._numbers = itertools.count()
        _with_globals(GrpcServer.__init__, grpc=_grpc(self._listen))(self, *arguments)

    def _listen(self, listen: Listen, _: str) -> str:
        url = f"unix:{self._folder.name}/{next(self._numbers)}"
        listen(url)
        return url

    def close(self) -> None:
        """Ends the services, and removes the sockets."""
        super().close()
        self._folder.cleanup()


class _Manager(WorkerHandlerManager):  # type: ignore[misc]
    get_worker_handlers = _with_globals(WorkerHandlerManager.get_worker_handlers, GrpcServer=PrivateGrpcServer)


class PrivateFnApiRunner(FnApiRunner):  # type: ignore[misc]
    """Beam's local runner, which opens no port."""

    run_stages = _with_globals(FnApiRunner.run_stages, WorkerHandlerManager=_Manager)


def _on_loopback(listen: Listen, address: str) -> int:
    return listen(address.replace("[::]", "localhost"))  # `start` tells runners `localhost`, too


BeamFnExternalWorkerPoolServicer.start = classmethod(
    _with_globals(BeamFnExternalWorkerPoolServicer.start.__func__, grpc=_grpc(_on_loopback))
)
