"""Starts the worker processes of the local runner, and notices when one dies."""

import os
import shlex
import subprocess
import sys
import threading

from apache_beam.portability import python_urns
from apache_beam.runners.portability.fn_api_runner.worker_handlers import (
    SubprocessSdkWorkerHandler,
    WorkerHandler,
)
from google.protobuf import json_format, text_format

from recordmill.pipeline.build.context.failures import DeadWorkerError
from recordmill.pipeline.build.runners import child_process

WORKER_COMMAND = shlex.join([sys.executable, "-P", child_process.__file__])
"""The command of a worker (`runners.child_process`), without its driver's number."""


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
        """The URL of a service, which is what `private_servers.PrivateGrpcServer` calls its port."""
        return port

    def _environment(self) -> dict[str, str]:
        """The variables that `apache_beam.runners.worker.sdk_worker_main` reads."""
        services = {"CONTROL": self.control_api_service_descriptor(), "LOGGING": self.logging_api_service_descriptor()}
        return {
            **{f"{name}_API_SERVICE_DESCRIPTOR": text_format.MessageToString(url) for name, url in services.items()},
            "PIPELINE_OPTIONS": json_format.MessageToJson(self.provision_info.provision_info.pipeline_options),
            "WORKER_ID": self.worker_id,
        }
