"""A build's jobs on Google Cloud Dataflow: their name, their graph, their page, and why one failed. Without Beam.

>>> job_name("My_Emoji", "4f1c9a2e" + 56 * "0")
'recordmill-my-emoji-4f1c9a2e'
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recordmill.pipeline.build.runners.dataflow_options import NAME_LENGTH
from recordmill.pipeline.build.runners.errors import RunnerError
from recordmill.pipeline.redaction import redacted
from recordmill.pipeline.safe_tracebacks import summary_of_text

PREFIX = "recordmill"
KEY_LENGTH = 8
GRAPH_BYTES = 10_000_000
"""The service refuses a graph of 10 MB."""
MESSAGE_LENGTH = 300
REPEATED = "work item was attempted"  # the service's summary of four failures; another message has their cause


def job_name(spec: str, build_key: str) -> str:
    """Names the jobs of a build: the same for each of them, so that a later driver finds one that still runs."""
    plain = re.sub("[^a-z0-9]+", "-", spec.lower()).strip("-")
    plain = plain[: NAME_LENGTH - len(f"{PREFIX}--") - KEY_LENGTH].strip("-")
    return "-".join(part for part in (PREFIX, plain, build_key[:KEY_LENGTH]) if part)


def is_job_of(name: str, build_key: str) -> bool:
    """Whether a job's name is that of a build's jobs."""
    return name.startswith(f"{PREFIX}-") and name.endswith(f"-{build_key[:KEY_LENGTH]}")


def console_url(region: str, job: str) -> str:
    """Gives the page of a job in Google's console, which knows the project; a query would be hidden in messages."""
    return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job}"


def check_reachable(workspace: str, sources: Iterable[str]) -> None:
    """Checks that the service's machines reach what a build writes and reads: they see no disk but their own.

    Raises:
        RunnerError: the output, or a source, is a local path.
    """
    if not workspace.startswith("gs://"):
        raise RunnerError(
            f"--runner dataflow needs an --output in Cloud Storage, gs://BUCKET/FOLDER: {workspace} is not"
        )
    for path in sources:
        if "://" not in path:
            raise RunnerError(
                f"Dataflow's machines cannot read {path}: copy it into Cloud Storage (`gcloud storage cp -r`), and "
                "give its gs:// URL as the source's path"
            )


def check_graph(size: int) -> None:
    """Checks the size of a job's graph, in bytes. Raises: RunnerError."""
    if size >= GRAPH_BYTES:
        raise RunnerError(
            f"the job's graph has {size:,} bytes, and Dataflow refuses {GRAPH_BYTES:,}: give the longest lists of the "
            "spec as files, such as `classes_file`"
        )


def describe(options: Mapping[str, Any], name: str, steps: int, size: int) -> str:
    """Describes the job that a dry run made."""
    shown = ("machine_type", "max_num_workers", "service_account_email", "subnetwork", "sdk_container_image")
    lines = [f"  {key}: {options[key]}" for key in ("project", "region", "temp_location", *shown) if options.get(key)]
    head = f"dry run: nothing was sent. The first job is {name}: {steps:,} steps, a graph of {size:,} bytes"
    return "\n".join([head, *lines])


def cause_of(messages: Sequence[str]) -> str:
    """Names the cause of a job's failure from the service's error messages, without values of rows.

    >>> cause_of(["The work item was attempted 4 times", "Quota 'CPUS' exceeded: 20 of 24"])
    "Quota 'CPUS' exceeded: 20 of 24"
    """
    for message in messages:
        if "Traceback" in message and (summary := summary_of_text(message)):
            return f"a worker raised {summary}"
    telling = [message for message in messages if REPEATED not in message] or list(messages)
    return redacted(telling[-1].strip())[:MESSAGE_LENGTH] if telling else "the service gives no reason"
