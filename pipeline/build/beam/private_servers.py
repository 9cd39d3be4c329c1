"""Keeps Beam's servers off the network: Beam 2.77 opens them on all interfaces, and asks nobody who they are.

What runs code for whoever connects is for this user alone: the workers of `--processes N` find their driver at Unix
sockets in a folder of mode 0700. A runner connects to the worker pool of `environment_type=LOOPBACK` by TCP, so that
pool listens on the loopback address.

    runner = PrivateFnApiRunner(environment)        # of `worker_handler.WORKER_COMMAND`
"""

import itertools
import re
import tempfile
from collections.abc import Callable
from functools import partial
from types import FunctionType, SimpleNamespace
from typing import Any

import grpc
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcServer, WorkerHandlerManager
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

Listen = Callable[[str], int]
FIT = re.compile(r"[\w/.+-]{1,70}", re.ASCII)
"""Temporary folders that fit: a socket's path has at most 103 bytes on macOS, and gRPC reads it as a URL."""
SHORT = "/tmp"  # noqa: S108 - for a folder of mode 0700 in it


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
