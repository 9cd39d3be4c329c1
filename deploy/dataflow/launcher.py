"""Starts a build from a Flex Template.

The service runs this file in the template's image, with the template's parameters and Beam's options, to make the
graph of one job. A build has several jobs, one after another, and a driver that publishes; so the template's job has
one step, and its only machine runs the driver: `recordmill build … --runner dataflow`. If that machine is lost, the
service starts another, and the driver goes on with the finished work.
"""

import argparse
import logging
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)

from recordmill.pipeline.errors import ExitCode

DRIVER_MACHINE = "e2-standard-4"  # 16 GB: the driver takes under 2 GB, Beam's own process on each core 0.3 GB
MESSAGE_LINES = 20
METRICS = "metrics.prom"
"""The file of a build's metrics, in the driver's folder: its lines go to the job's log."""


def main(arguments: Sequence[str]) -> None:
    """Makes the driver's job; the service starts it."""
    parameters, rest = parse(arguments)
    options = driver_options(rest, parameters.sdk_container_image)
    command = driver_command(parameters, PipelineOptions(rest))
    with beam.Pipeline(options=options) as pipeline:
        pipeline | "Command" >> beam.Create([command]) | "RunDriver" >> beam.Map(run_driver)


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Separates the template's parameters (`metadata.json`) from Beam's options."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("spec", "output", "sdk_container_image"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("service_account", "machine_type", "max_workers", "labels"):
        parser.add_argument(f"--build_{name}", default="")
    return parser.parse_known_args(list(arguments))


def driver_options(rest: Sequence[str], image: str) -> PipelineOptions:
    """Returns the options of the driver's job: one machine, one thread, nothing installed."""
    options = PipelineOptions(list(rest), sdk_container_image=image, sdk_location="container")
    options.view_as(SetupOptions).save_main_session = False
    options.view_as(DebugOptions).number_of_worker_harness_threads = 1
    workers = options.view_as(WorkerOptions)
    workers.num_workers = workers.max_num_workers = 1
    workers.machine_type = workers.machine_type or DRIVER_MACHINE
    return options


def driver_command(parameters: argparse.Namespace, launched: PipelineOptions) -> list[str]:
    """Returns the arguments of `recordmill build`, whose jobs run where the template runs."""
    cloud, workers = launched.view_as(GoogleCloudOptions), launched.view_as(WorkerOptions)
    given = {
        "project": cloud.project,
        "region": cloud.region,
        "temp_location": cloud.temp_location,
        "staging_location": cloud.staging_location,
        "network": workers.network,
        "subnetwork": workers.subnetwork,
        "sdk_container_image": parameters.sdk_container_image,
        "service_account_email": parameters.build_service_account or cloud.service_account_email,
        "machine_type": parameters.build_machine_type,
        "max_num_workers": parameters.build_max_workers,
    }
    options = [f"--{name}={value}" for name, value in given.items() if value]
    options += [f"--labels={label}" for label in parameters.build_labels.split(",") if label]
    if workers.use_public_ips:
        options.append("--use_public_ips")
    wanted = ["--output", parameters.output, "--runner", "dataflow", "--metrics", METRICS]
    return ["build", parameters.spec, *wanted, "--", *options]


def run_driver(command: Sequence[str]) -> None:
    """Runs the driver on a worker, its lines in the job's log.

    Raises:
        RuntimeError: it failed; the message has its last lines. The service tries again.
    """
    build, spec, *rest = command
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "dataset.yaml")
        with FileSystems.open(spec) as file:
            copy.write_bytes(file.read())
        driver = subprocess.Popen(  # noqa: S603 - the arguments are a list, without a shell
            [sys.executable, "-m", "recordmill", build, str(copy), *rest], cwd=folder, stderr=subprocess.PIPE, text=True
        )
        lines: deque[str] = deque(maxlen=MESSAGE_LINES)
        for line in driver.stderr or ():
            logging.info(line.rstrip("\n"))
            lines.append(line)
        status = driver.wait()
        if Path(folder, METRICS).exists():
            for line in Path(folder, METRICS).read_text(encoding="utf-8").splitlines():
                logging.info(line)
        if status not in (ExitCode.PUBLISHED, ExitCode.UP_TO_DATE):
            raise RuntimeError(f"the driver ended with status {status}:\n{''.join(lines)}")


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.INFO)
    main(sys.argv[1:])
