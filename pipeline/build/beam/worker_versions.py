"""Asks the workers of a cluster for their versions, by a small job whose counters are the answers."""

import apache_beam as beam
from apache_beam.metrics import Metrics, MetricsFilter
from apache_beam.utils.subprocess_server import JavaJarServer

from recordmill.pipeline.build.beam.flink import FlinkRunner
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.runners.doctor import SystemCheck, describe, versions
from recordmill.pipeline.build.runners.worker_environment import worker_threads
from recordmill.pipeline.errors import UserError

ELEMENTS = 64  # enough that every slot gets one
NAMESPACE = "doctor"
MAVEN_CENTRAL: str = JavaJarServer.MAVEN_CENTRAL_REPOSITORY


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
