"""Starts a worker on a cluster: fetches the job's options from the runner, and becomes Beam's own worker.

    recordmill-worker --id=ID --provision_endpoint=HOST:PORT ...

A TaskManager of Flink runs it (`environment_type=PROCESS`), or the pool next to it (`worker_pool`), by Beam's container
contract, without Docker. It installs nothing: the worker uses the packages of this environment.
"""

import argparse
import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence

import grpc
from apache_beam.portability.api import beam_provision_api_pb2 as provision
from apache_beam.portability.api import beam_provision_api_pb2_grpc as provision_grpc
from google.protobuf import json_format

from recordmill.pipeline.build.runners.worker_environment import limit_arenas, set_tensorflow_variables
from recordmill.pipeline.private_folder import end_by_signal, remove_private_folder, use_private_folder

TIMEOUT_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Works until the runner ends the job."""
    parser = argparse.ArgumentParser(prog="recordmill-worker", description="Beam's worker on a cluster.")
    parser.add_argument("--id", required=True)
    for name in ("logging", "artifact", "provision", "control"):
        parser.add_argument(f"--{name}_endpoint", default="", metavar="HOST:PORT")
    known, _ = parser.parse_known_args(arguments)
    os.dup2(2, 1)  # to standard error: an unread pipe of standard output would stop the worker after 64 KiB
    use_private_folder()
    signal.signal(signal.SIGTERM, end_by_signal)  # a TaskManager ends its workers by it
    set_tensorflow_variables()
    limit_arenas()
    os.environ |= environment(known, provision_info(known.id, known.provision_endpoint))
    importlib.import_module("apache_beam.runners.worker.sdk_worker_main").main(sys.argv[:1])
    remove_private_folder()
    os._exit(0)  # TensorFlow may crash at interpreter exit, after a successful job


def provision_info(worker: str, endpoint: str) -> provision.ProvisionInfo:
    """Asks the runner for the job's options and the services' addresses."""
    with grpc.insecure_channel(endpoint) as channel:
        service = provision_grpc.ProvisionServiceStub(channel)
        request = provision.GetProvisionInfoRequest()
        return service.GetProvisionInfo(request, metadata=(("worker_id", worker),), timeout=TIMEOUT_SECONDS).info


def environment(known: argparse.Namespace, info: provision.ProvisionInfo) -> dict[str, str]:
    """Makes the variables that `apache_beam.runners.worker.sdk_worker_main` reads."""
    variables = {
        "WORKER_ID": known.id,
        "PIPELINE_OPTIONS": json.dumps(json_format.MessageToDict(info.pipeline_options)),
        "LOGGING_API_SERVICE_DESCRIPTOR": _descriptor(info.logging_endpoint.url or known.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": _descriptor(info.control_endpoint.url or known.control_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.status_endpoint.url:
        variables["STATUS_API_SERVICE_DESCRIPTOR"] = _descriptor(info.status_endpoint.url)
    return variables


def _descriptor(url: str) -> str:
    return f"url: {json.dumps(url)}"


if __name__ == "__main__":
    main()
