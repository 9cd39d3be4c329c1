"""Google Cloud Dataflow without Beam: presets and checks of its options, and a job's name, graph, page and failure.

The service refuses a wrong label or subnetwork after minutes of staging, or its machines never start. These checks give
one message each, before anything is sent. Options keep Beam's names.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
MAX_LABELS = 64
NAME_LENGTH = 63  # characters of a bucket, a label, a network, a job
PREFIX = "recordmill"
KEY_LENGTH = 8
GRAPH_BYTES = 10_000_000  # the service refuses a graph of 10 MB
MESSAGE_LENGTH = 300
REPEATED = "work item was attempted"  # the service's summary of four failures; another message gives the cause
REGION = r"[a-z]+-[a-z]+\d{1,2}"
NAME = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
PART = r"[a-z0-9](?:[-a-z0-9_]{0,61}[a-z0-9])?"  # of a bucket's name, between dots
BUCKET = rf"(?=[^/]{{3,222}}/)(?!goog|[^/]*google|\d+\.\d+\.\d+\.\d+/){PART}(?:\.{PART})*"
FOLDER = (
    re.compile(rf"gs://{BUCKET}/+[^/].*"),
    "a folder of a bucket, such as gs://my-bucket/temp; a bucket's name has 3 to 63 a-z 0-9 - _ . and no 'google'",
)
SMALL_OR_ARM = r"(?:f1-micro|g1-small|e2-(?:micro|small|medium)|t2a-|[a-z]\d+a-)"
CUSTOM_MACHINE = r"(?:[a-z]\d[a-z]?-)?custom-(?:1|\d*[02468])-\d+(?:-ext)?"
LABEL = re.compile(r"([a-z][a-z0-9_-]{0,62})(?:=[a-z0-9_-]{0,63})?")
SUBNETWORK = rf"(?:https://\S+/|projects/[^/]+/)?regions/([^/]+)/subnetworks/{NAME}"
MACHINES = re.compile(r"[1-9]\d{0,2}|[1-3]\d{3}|4000"), "a number of machines from 1 to 4,000"
FORMS = {
    "region": (re.compile(REGION), "a region, such as europe-west1"),
    "worker_region": (re.compile(REGION), "a region, such as europe-west1"),
    "worker_zone": (re.compile(rf"{REGION}-[a-z]"), "a zone, such as europe-west1-b"),
    "project": (
        re.compile(r"(?:[a-z][-a-z0-9.]*:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"),
        "a project's id: 6 to 30 lower-case letters, digits and hyphens; not its name or number",
    ),
    "temp_location": FOLDER,
    "staging_location": FOLDER,
    "machine_type": (
        re.compile(rf"(?!{SMALL_OR_ARM})(?:[a-z]\d[a-z]?-[a-z]+(?:-\d+[gt]?)?(?:-[a-z]+)?|{CUSTOM_MACHINE})"),
        "an x86 machine with dedicated cores and the memory for TensorFlow: n2-highmem-4, or n2-custom-4-32768",
    ),
    "service_account_email": (
        re.compile(
            r"[a-z0-9][-a-z0-9]{4,28}[a-z0-9]@[a-z][-a-z0-9.]*\.iam\.gserviceaccount\.com"
            r"|\d+-compute@developer\.gserviceaccount\.com"
        ),
        "a service account, such as worker@my-project.iam.gserviceaccount.com",
    ),
    "network": (re.compile(rf"(?:.*/?projects/[^/]+/global/networks/)?{NAME}"), "a network's name"),
    "subnetwork": (re.compile(SUBNETWORK), "regions/REGION/subnetworks/NAME, nor its whole URL"),
    "sdk_container_image": (
        re.compile(
            r"[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+"
            r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
        ),
        "an image with its registry, such as HOST/PROJECT/REPOSITORY/NAME@sha256:DIGEST",
    ),
    "num_workers": MACHINES,
    "max_num_workers": MACHINES,
    "number_of_worker_harness_threads": (re.compile(r"[1-9]\d*"), "a number of threads from 1 on"),
    "disk_size_gb": (
        re.compile(r"[3-9]\d|[1-9]\d{2,}"),
        "the size of a disk for the image and its system: 30 GB at least",
    ),
}
REFUSED = {
    "job_name": "a build names its jobs itself, for a later driver to find them",
    "template_location": "a classic template holds one job's graph, and a build runs several: use deploy/dataflow",
    "dataflow_job_file": "use --dry_run=True, which writes nothing",
    "streaming": "a build is a batch job",
    "update": "only a streaming job can be updated",
    "zone": "Dataflow calls it --worker_zone now",
    "worker_harness_container_image": "Dataflow calls it --sdk_container_image now",
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
    """Checks options before anything is sent; missing ones first. Raises: RunnerError: a line for each bad one."""
    if problems := [*_missing(options)] or [*_malformed(options), *_unfit(options)]:
        raise RunnerError("\n".join(problems))


def _missing(options: Options) -> Iterator[str]:
    for name, meaning in REQUIRED.items():
        if not options.get(name):
            yield f"--runner dataflow needs --{name} after the --: {meaning}"


def _malformed(options: Options) -> Iterator[str]:
    for name, reason in REFUSED.items():
        if options.get(name):
            yield f"--{name} is refused: {reason}"
    for name, (form, meaning) in FORMS.items():
        value = options.get(name)
        if value is not None and not form.fullmatch(str(value)):
            yield f"--{name} '{value}' is not {meaning}"
    for value in options.get("labels") or ():
        if not all(map(LABEL.fullmatch, _pairs(value))):
            yield f"--labels '{value}' is not key=value, nor a dictionary, of 1 to 63 of a-z 0-9 _ -, a letter first"


def _pairs(value: str) -> list[str]:
    """Reads a value of `--labels` as Beam does: `key=value`, or a dictionary's text."""
    try:
        return [f"{key}={text}" for key, text in ast.literal_eval(value).items()] if "{" in value else [value]
    except (SyntaxError, ValueError, AttributeError):
        return [value]


def _unfit(options: Options) -> Iterator[str]:
    if options.get("worker_region") and options.get("worker_zone"):
        yield "--worker_region and --worker_zone exclude each other: leave one out"
    workers, most = options.get("num_workers"), options.get("max_num_workers")
    if workers and most and workers > most:
        yield f"--num_workers {workers} is more than --max_num_workers {most}"
    keys = [pair.partition("=")[0] for value in options.get("labels") or () for pair in _pairs(value)]
    if len(keys) > MAX_LABELS or len(keys) > len(set(keys)):
        yield f"--labels: {len(keys)} labels with {len(set(keys))} keys: a job has {MAX_LABELS} at most, each key once"
    region = options.get("worker_region") or (options.get("worker_zone") or options["region"])
    found = re.fullmatch(SUBNETWORK, options.get("subnetwork") or "")
    if found and not f"{region}-".startswith(f"{found[1]}-"):
        yield f"--subnetwork '{found[0]}' lies in {found[1]}, and the workers are in {region}"


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
