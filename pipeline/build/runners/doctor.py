"""Checks a build's requirements before it begins: this environment, and the cluster of `--runner flink`."""

import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from recordmill.pipeline import VERSION
from recordmill.pipeline.build.runners import flink_cluster
from recordmill.pipeline.build.runners.flink_cluster import FlinkOptions, find_jar, worker_environment
from recordmill.pipeline.build.runners.flink_job import FlinkRest
from recordmill.pipeline.dataset.paths import user_cache
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.parallel import cores

PACKAGES = ("apache-beam", "tensorflow", "tensorflow-transform", "pyarrow")
"""Driver and workers need the same versions of these: they exchange pickles and graphs."""
WORKER_BYTES = 1 << 30  # 1 GiB: a worker with TensorFlow and a batch of images


@dataclass(frozen=True)
class SystemCheck:
    """The result of one check."""

    name: str
    text: str
    is_ok: bool = True


def versions() -> str:
    """Lists the versions that driver and workers must have in common: `python 3.11, recordmill 0.1.0, …`."""
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "recordmill": VERSION}
    found |= {name: importlib.metadata.version(name) for name in PACKAGES}
    return ", ".join(f"{name} {version}" for name, version in found.items())


def local_findings() -> Iterator[SystemCheck]:
    """Checks this environment and machine."""
    yield SystemCheck("packages", versions())
    memory = psutil.virtual_memory()
    text = f"{cores()} cores, {memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB of memory available"
    yield SystemCheck("machine", text, memory.available >= WORKER_BYTES)
    folder = Path(user_cache())
    cache = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(cache).free
    yield SystemCheck("cache", f"{folder}: {free / 2**30:.1f} GiB free", os.access(cache, os.W_OK))


def flink_findings(options: FlinkOptions) -> Iterator[SystemCheck]:
    """Checks Java, the job server's jar, the workers' program, and the cluster, if one is given."""
    yield _finding("java", lambda: f"{(java := flink_cluster.find_java())}, version {flink_cluster.java_version(java)}")
    yield _finding("jar", lambda: f"{(jar := find_jar(options))}, sha256 {flink_cluster.digest(jar)}")
    yield _finding("workers", lambda: _workers(options))
    if not options.master:
        yield SystemCheck("cluster", "not looked at: no --flink-master")
        return
    yield _finding("cluster", lambda: _version(FlinkRest(options.master)))
    yield _finding("slots", lambda: _slots(FlinkRest(options.master)))


def _finding(name: str, look: Callable[[], str]) -> SystemCheck:
    try:
        return SystemCheck(name, look())
    except UserError as error:
        return SystemCheck(name, str(error), is_ok=False)


def _workers(options: FlinkOptions) -> str:
    config = json.loads(worker_environment(options.workers, "")["environment_config"])
    return f"started by {config['command']}" if "command" in config else f"of the pools at {config['url']}"


def _version(cluster: FlinkRest) -> str:
    version = cluster.overview().version
    if (pair := flink_cluster.pair_for(version)) is None:
        raise UserError(f"Flink {version} at {cluster.url}: Beam has no job server for it")
    known = "run by Recordmill's tests" if pair.was_run else "expected to work, never run"
    return f"Flink {version} at {cluster.url}; with Beam's Java runner {pair.beam}: {known}"


def _slots(cluster: FlinkRest) -> str:
    seen = cluster.overview()
    text = f"{seen.free_slots} of {seen.slots} free, on {seen.task_managers} TaskManagers"
    if not seen.free_slots:
        raise UserError(f"{text}: a build would wait")
    return text
