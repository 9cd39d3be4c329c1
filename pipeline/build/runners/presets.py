"""Beam's options that a user need not know: presets by runner, which options of the user's own replace.

>>> with_presets(["--parallelism=4"], {"parallelism": "8", "job_name": "a"})
['--job_name=a', '--parallelism=4']
"""

import json
import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from recordmill.pipeline.build.runners.errors import RunnerError
from recordmill.pipeline.build.runners.flink_rest import FlinkRest
from recordmill.pipeline.build.runners.options import FlinkOptions

WORKER = "recordmill-worker"
POOL = re.compile(r"[\w.-]+:\d+")
SLOT_SECONDS = 180.0
CACHE_MILLISECONDS = 5_000
"""The life of an idle worker: Beam keeps it for a later step of its own job, and no other job gets it. Steps follow one
another sooner, unless a long sort lies between; and it holds 0.3 GB or more beside the workers of the next job."""
ENVIRONMENT = ("environment_type", "environment_config", "environment_options")
ATTEMPT = "RECORDMILL_ATTEMPT"
"""A variable of the workers' environment: Flink hands a dead worker's environment out again as long as it is cached, so
each attempt has one that differs."""


def option_names(arguments: Sequence[str]) -> set[str]:
    """Names the options among arguments, without dashes and values."""
    return {argument[2:].partition("=")[0] for argument in arguments if argument.startswith("--")}


def with_presets(arguments: Sequence[str], presets: Mapping[str, str]) -> list[str]:
    """Puts presets in front of the user's options, except those that the user gives."""
    given = option_names(arguments)
    if given & {*ENVIRONMENT}:
        given |= {*ENVIRONMENT}  # they make sense together alone
    return [*(f"--{name}={value}" for name, value in presets.items() if name not in given), *arguments]


def flink_presets(
    cluster: FlinkRest, options: FlinkOptions, given: Collection[str], job: str, attempt: str
) -> dict[str, str]:
    """Makes the presets of a job on Flink, from what the cluster says now.

    Args:
        cluster: the cluster.
        options: the user's options for Flink.
        given: the names of Beam's options that the user gives.
        job: the job's name.
        attempt: a name that no other attempt has.

    Raises:
        RunnerError: no slot becomes free, or the workers' program is missing.
        FlinkError: the cluster does not answer.
    """
    slots = {} if "parallelism" in given else {"parallelism": str(free_slots(cluster))}
    return {
        "job_name": job,
        "flink_master": cluster.address,
        **slots,
        "sdk_worker_parallelism": str(cluster.slots_per_worker()),
        "environment_cache_millis": str(CACHE_MILLISECONDS),
        **({} if {*ENVIRONMENT} & {*given} else worker_environment(options.workers, attempt)),
    }


def free_slots(cluster: FlinkRest, timeout_seconds: float = SLOT_SECONDS) -> int:
    """Counts the slots that are free now, waiting for one: a lost TaskManager may be on its way back.

    Raises:
        RunnerError: none becomes free in time.
    """
    end = time.monotonic() + timeout_seconds
    while not (seen := cluster.overview()).free_slots:
        if time.monotonic() > end:
            raise RunnerError(
                f"the Flink cluster at {cluster.url} has {seen.slots:,} slots on {seen.task_managers:,} TaskManagers, "
                "and none is free: wait for its jobs, add TaskManagers, or queue the job with -- --parallelism=N"
            )
        time.sleep(0.5)
    return seen.free_slots


def worker_environment(workers: str, attempt: str) -> dict[str, str]:
    """Makes the options of the workers' environment: a pool beside each TaskManager, or a program that it starts.

    Raises:
        RunnerError: the default program is missing.
    """
    if POOL.fullmatch(workers):
        config = {"url": workers, "params": {ATTEMPT: attempt}}
        return {"environment_type": "EXTERNAL", "environment_config": json.dumps(config)}
    command = workers or str(Path(sys.executable).parent / WORKER)
    if not workers and not Path(command).is_file():
        raise RunnerError(
            f"there is no {command}: install Recordmill into this environment anew, or name the workers' program or "
            "pool with --flink-workers"
        )
    return {
        "environment_type": "PROCESS",
        "environment_config": json.dumps({"command": command, "env": {ATTEMPT: attempt}}),
    }


def flink_configuration(life_seconds: float) -> str:
    """Writes the `config.yaml` of the jobs.

    A job that Flink starts again finds workers that hold what the first try left in their memory, so the driver tries
    again instead; Flink 1.19 does not heed that of a batch job, so the driver watches for it too. And a job ends when
    its driver has not shown for a while that it is alive: Flink watches for that if a job is attached to its client.
    """
    return "\n".join(
        [
            "restart-strategy.type: none",
            "execution.attached: true",
            "execution.shutdown-on-attached-exit: true",
            f"client.heartbeat.timeout: {round(1000 * life_seconds)}",
            "",
        ]
    )
