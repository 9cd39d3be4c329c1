"""Google Cloud Dataflow without Beam: presets and checks of its options, and a job's name, graph, page and failure.

Options keep Beam's names. Beam's validator and these checks give a message each before anything is sent; the service
refuses other values with the job.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.safe_text import redacted, summary_of_text

Options = Mapping[str, Any]  # Beam's options by their names, without default values

REQUIRED = {
    "project": "the project's id, such as my-project",
    "region": "such as europe-west1",
    "temp_location": "a folder of a bucket in that region, such as gs://my-bucket/temp",
    "sdk_container_image": "the image of deploy/container in a registry, best with its digest",
}
PRESETS: dict[str, Any] = {
    "machine_type": "n2-highmem-4",  # one Python process a core, each with TensorFlow (0.8 GB) and a shard's rows
    "number_of_worker_harness_threads": 1,  # a process holds one shard's rows; its own threads overlap reading
    "max_num_workers": 20,  # the service's default is the project's quota
    "disk_size_gb": 50,  # the image has 4 GB unpacked; rows cross the service's shuffle, not the disk
    "use_public_ips": False,  # the subnetwork needs Private Google Access
    "sdk_location": "container",  # a starting worker installs nothing
    "save_main_session": False,  # the modules that a spec names travel as source
}
NAME_LENGTH = 63  # characters of a job's name
PREFIX = "recordmill"
KEY_LENGTH = 8
GRAPH_BYTES = 10_000_000  # the service refuses a graph of 10 MB
MESSAGE_LENGTH = 300
REPEATED = "work item was attempted"  # the service's summary of four failures; another message gives the cause
FOLDER = re.compile(r"gs://[a-z0-9][-_.a-z0-9]+[a-z0-9]/+[^/].*")  # Beam would make a bucket for another
REFUSED = {
    "job_name": "a build names its jobs itself, for a later driver to find them",
    "template_location": "a classic template holds one job's graph, and a build runs several: use deploy/dataflow",
    "dataflow_job_file": "use --dry_run=True, which writes nothing",
    "streaming": "a build is a batch job",
    "update": "only a streaming job can be updated",
}


def with_presets(given: Options) -> dict[str, Any]:
    """Adds the presets to the user's options, which override them."""
    options = PRESETS | dict(given)
    if "max_num_workers" not in given:
        options["max_num_workers"] = max(PRESETS["max_num_workers"], given.get("num_workers") or 0)
    if temp := given.get("temp_location"):
        options.setdefault("staging_location", f"{temp.rstrip('/')}/staging")
    return options


def check(options: Options) -> None:
    """Checks what Beam's validator does not. Raises: RunnerError: a line for each bad option."""
    missing = {name: meaning for name, meaning in REQUIRED.items() if not options.get(name)}
    problems = [f"--runner dataflow needs --{name} after the --: {meaning}" for name, meaning in missing.items()]
    problems += [f"--{name} is refused: {reason}" for name, reason in REFUSED.items() if options.get(name)]
    for name in ("temp_location", "staging_location"):
        if options.get(name) and not FOLDER.fullmatch(options[name]):
            problems.append(f"--{name} '{options[name]}' is not a folder of a bucket, such as gs://my-bucket/temp")
    if problems:
        raise RunnerError("\n".join(problems))


def job_name(spec: str, build_key: str) -> str:
    """Makes the name of all jobs of a build, by which a later driver finds a running one."""
    plain = re.sub("[^a-z0-9]+", "-", spec.lower()).strip("-")
    plain = plain[: NAME_LENGTH - len(f"{PREFIX}--") - KEY_LENGTH].strip("-")
    return "-".join(part for part in (PREFIX, plain, build_key[:KEY_LENGTH]) if part)


def is_job_of(name: str, build_key: str) -> bool:
    """Whether a job's name is the name of a build's jobs."""
    return name.startswith(f"{PREFIX}-") and name.endswith(f"-{build_key[:KEY_LENGTH]}")


def console_url(region: str, job: str) -> str:
    """Returns the URL of a job's page in Google's console, which knows the project; messages hide a URL's query."""
    return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job}"


def check_reachable(workspace: str, sources: Iterable[str]) -> None:
    """Checks that the service's machines reach a build's output and sources. Raises: RunnerError: one is local."""
    if not workspace.startswith("gs://"):
        raise RunnerError(f"--runner dataflow needs an --output in Cloud Storage, gs://BUCKET/FOLDER, not {workspace}")
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
    """Describes the job of a dry run."""
    shown = ("machine_type", "max_num_workers", "service_account_email", "subnetwork", "sdk_container_image")
    lines = [f"  {key}: {options[key]}" for key in ("project", "region", "temp_location", *shown) if options.get(key)]
    head = f"dry run: nothing was sent. The first job is {name}: {steps:,} steps, a graph of {size:,} bytes"
    return "\n".join([head, *lines])


def cause_of(messages: Sequence[str]) -> str:
    """Finds the cause of a job's failure in the service's error messages, without values of rows.

    >>> cause_of(["The work item was attempted 4 times", "Quota 'CPUS' exceeded: 20 of 24"])
    "Quota 'CPUS' exceeded: 20 of 24"
    """
    for message in messages:
        if "Traceback" in message and (summary := summary_of_text(message)):
            return f"a worker raised {summary}"
    telling = [message for message in messages if REPEATED not in message] or list(messages)
    return redacted(telling[-1].strip())[:MESSAGE_LENGTH] if telling else "the service gives no reason"
