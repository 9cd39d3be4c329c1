"""A pool next to a TaskManager: it starts a worker process when the TaskManager asks (`environment_type=EXTERNAL`).

    python -m recordmill.pipeline.build.beam.worker_pool --port 50000

It listens on the loopback address alone, because its clients can start processes: TaskManager and pool share a machine
or a pod. Each TaskManager needs its own pool: workers are numbered by TaskManager, and two with the same number would
end each other. On SIGTERM the pool ends its workers.
"""

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.utils.thread_pool_executor import shared_unbounded_instance

from recordmill.pipeline.build.runners import child_process
from recordmill.pipeline.build.runners.flink_cluster import WORKER

PORT = 50000


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT; exits with 1 if the port is taken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=PORT, help=f"of the loopback address; by default {PORT}")
    port = parser.parse_args(arguments).port
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    boot = Path(sys.executable).with_name(WORKER)  # it fulfils Beam's container contract
    if not boot.is_file():
        sys.exit(f"{boot} is missing: reinstall Recordmill in this environment")
    pool = BeamFnExternalWorkerPoolServicer(use_process=True, container_executable=str(boot))
    server = grpc.server(shared_unbounded_instance(), options=[("grpc.so_reuseport", 0)])
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    try:
        server.add_insecure_port(f"127.0.0.1:{port}")
    except RuntimeError:
        sys.exit(f"port {port} of 127.0.0.1 is taken: give another with --port")
    server.start()
    logging.info("the pool listens on 127.0.0.1:%d", port)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    server.stop(0)
    child_process.end(list(pool._worker_processes.values()))


if __name__ == "__main__":
    main()
