"""Google Cloud Dataflow without Beam: presets and checks of its options, and a job's name, graph, page and failure.

The service refuses a wrong label or subnetwork after minutes of staging, or its machines never start. Here each is one
message, before anything is sent. Options keep Beam's names.

>>> check({"project": "my-project", "region": "europe-west1-b"})
Traceback (most recent call last):
...
recordmill.pipeline.build.runners.job.RunnerError: --region 'europe-west1-b' is a zone: the region is europe-west1
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from recordmill.pipeline.build.runners.job import RunnerError
from recordmill.pipeline.safe_text import redacted, summary_of_text

Options = Mapping[str, Any]
"""Beam's options by their names, without default values."""

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
    "sdk_location": "container",  # nothing is installed when a worker starts
    "save_main_session": False,  # the modules that a spec names travel as source
}
MAX_WORKERS = 4_000
MAX_LABELS = 64
NAME_LENGTH = 63  # characters of a bucket, a label, a network, a job
PREFIX = "recordmill"
KEY_LENGTH = 8
GRAPH_BYTES = 10_000_000
"""The service refuses a graph of 10 MB."""
MESSAGE_LENGTH = 300
REPEATED = "work item was attempted"  # the service's summary of four failures; another message has their cause
REGION = re.compile(r"[a-z]+-[a-z]+\d{1,2}")
ZONE = re.compile(r"([a-z]+-[a-z]+\d{1,2})-[a-z]")
NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
PROJECT = re.compile(r"(?:[a-z][-a-z0-9.]*:)?[a-z][-a-z0-9]{4,28}[a-z0-9]")
BUCKET = re.compile(r"(?!goog)(?!.*(?:google|\.\.))(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9][-a-z0-9_.]{1,220}[a-z0-9]")
MACHINE = re.compile(r"[a-z]\d[a-z]?-[a-z]+(?:-\d+[gt]?)?(?:-[a-z]+)?")
CUSTOM_MACHINE = re.compile(r"(?:[a-z]\d[a-z]?-)?custom-(\d+)-(\d+)(?:-ext)?")
SMALL_MACHINE = re.compile(r"f1-micro|g1-small|e2-(?:micro|small|medium)")
ARM_MACHINE = re.compile(r"(?:t2a|[a-z]\d+a)-.*")
LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
ACCOUNT = re.compile(
    r"[a-z0-9][-a-z0-9]{4,28}[a-z0-9]@[a-z][-a-z0-9.]*\.iam\.gserviceaccount\.com"
    r"|\d+-compute@developer\.gserviceaccount\.com"
)
NETWORK = re.compile(rf"(?:.*/?projects/[^/]+/global/networks/)?{NAME.pattern}")
SUBNETWORK = re.compile(rf"(?:https://\S+/|projects/[^/]+/)?regions/([^/]+)/subnetworks/{NAME.pattern}")
IMAGE = re.compile(
    r"[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)+"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
FORMS = {
    "worker_region": (REGION, "a region, such as europe-west1"),
    "worker_zone": (ZONE, "a zone, such as europe-west1-b"),
    "project": (PROJECT, "a project's id: 6 to 30 lower-case letters, digits and hyphens; not its name or number"),
    "service_account_email": (ACCOUNT, "a service account, such as worker@my-project.iam.gserviceaccount.com"),
    "network": (NETWORK, "a network's name"),
    "sdk_container_image": (IMAGE, "an image with its registry, such as HOST/PROJECT/REPOSITORY/NAME@sha256:DIGEST"),
}
REFUSED = {
    "job_name": "a build names its jobs itself, so that a later driver finds them",
    "template_location": "a classic template holds one job's graph, and a build runs several: use deploy/dataflow",
    "dataflow_job_file": "use --dry_run=True, which writes nothing",
    "streaming": "a build is a batch job",
    "update": "only a streaming job can be updated",
    "zone": "Dataflow calls it --worker_zone now",
    "worker_harness_container_image": "Dataflow calls it --sdk_container_image now",
}


def with_presets(given: Options) -> dict[str, Any]:
    """Completes the options that the user gave; any preset may be given otherwise."""
    options = PRESETS | dict(given)
    if "max_num_workers" not in given:
        options["max_num_workers"] = max(PRESETS["max_num_workers"], given.get("num_workers") or 0)
    if temp := given.get("temp_location"):
        options.setdefault("staging_location", f"{temp.rstrip('/')}/staging")
    return options


def check(options: Options) -> None:
    """Checks options before anything is sent to the service; missing ones first.

    Raises:
        RunnerError: one line for each option that the service would refuse.
    """
    problems = list(_missing(options)) or [problem for find in CHECKS for problem in find(options)]
    if problems:
        raise RunnerError("\n".join(problems))


def labels_of(values: Sequence[str] | Mapping[str, str] | str | None) -> list[tuple[str, str]]:
    """Reads labels as Beam does: `key=value`, or a dictionary's text; pairs, since a key may stand twice."""
    if isinstance(values, Mapping):
        return list(values.items())
    pairs: list[tuple[str, str]] = []
    for value in [values] if isinstance(values, str) else values or []:
        if "{" in value:
            pairs += ((str(key), str(text)) for key, text in ast.literal_eval(value).items())
        else:
            key, _, text = value.partition("=")
            pairs.append((key, text))
    return pairs


def _missing(options: Options) -> Iterator[str]:
    for name, meaning in REQUIRED.items():
        if not options.get(name):
            yield f"--runner dataflow needs --{name} after the --: {meaning}"


def _check_forms(options: Options) -> Iterator[str]:
    for name, (form, meaning) in FORMS.items():
        value = options.get(name)
        if value is not None and not form.fullmatch(str(value)):
            yield f"--{name} '{value}' is not {meaning}"


def _check_refused(options: Options) -> Iterator[str]:
    for name, reason in REFUSED.items():
        if options.get(name):
            yield f"--{name} is refused: {reason}"


def _check_region(options: Options) -> Iterator[str]:
    region = str(options["region"])
    if zone := ZONE.fullmatch(region):
        yield f"--region '{region}' is a zone: the region is {zone[1]}"
    elif not REGION.fullmatch(region):
        yield f"--region '{region}' is not a region, such as europe-west1"
    if options.get("worker_region") and options.get("worker_zone"):
        yield "--worker_region and --worker_zone exclude each other: leave one out"


def _check_buckets(options: Options) -> Iterator[str]:
    for name in ("temp_location", "staging_location"):
        value = str(options.get(name) or "gs://bucket/folder")
        bucket, _, folder = value.removeprefix("gs://").partition("/")
        if not value.startswith("gs://"):
            yield f"--{name} '{value}' is not a folder of a bucket, such as gs://my-bucket/temp"
        elif not BUCKET.fullmatch(bucket) or ("." not in bucket and len(bucket) > NAME_LENGTH):
            yield (
                f"--{name} '{value}': '{bucket}' is no bucket's name: 3 to 63 lower-case letters, digits, - _ . , "
                "with a letter or digit at both ends, without 'google'"
            )
        elif not folder.strip("/"):
            yield f"--{name} '{value}' is a whole bucket: name a folder in it, such as gs://{bucket}/temp"


def _check_machine(options: Options) -> Iterator[str]:
    machine = str(options.get("machine_type") or PRESETS["machine_type"])
    custom = CUSTOM_MACHINE.fullmatch(machine)
    if SMALL_MACHINE.fullmatch(machine):
        yield f"--machine_type '{machine}' shares its core and has too little memory for TensorFlow: {_SUGGESTED}"
    elif ARM_MACHINE.fullmatch(machine):
        yield f"--machine_type '{machine}' is an Arm machine, for which tfx-bsl has no packages: {_SUGGESTED}"
    elif custom and (int(custom[2]) % 256 or (int(custom[1]) > 1 and int(custom[1]) % 2)):
        yield f"--machine_type '{machine}': a custom machine has 1 core or an even number, and steps of 256 MB"
    elif not custom and not MACHINE.fullmatch(machine):
        yield f"--machine_type '{machine}' is not a machine type: {_SUGGESTED}"


_SUGGESTED = f"take one such as {PRESETS['machine_type']}, or n2-custom-4-32768"


def _check_workers(options: Options) -> Iterator[str]:
    for name in ("num_workers", "max_num_workers"):
        value = options.get(name)
        if value is not None and not 1 <= value <= MAX_WORKERS:
            yield f"--{name} {value} is not a number of machines from 1 to {MAX_WORKERS:,}"
    if (options.get("num_workers") or 1) > (options.get("max_num_workers") or MAX_WORKERS):
        yield f"--num_workers {options['num_workers']} is more than --max_num_workers {options['max_num_workers']}"
    if (threads := options.get("number_of_worker_harness_threads")) is not None and threads < 1:
        yield f"--number_of_worker_harness_threads {threads} is not a number of threads from 1 on"
    if (disk := options.get("disk_size_gb")) is not None and disk < 30:
        yield f"--disk_size_gb {disk} is too small for the image and its system: 30 at least"


def _check_labels(options: Options) -> Iterator[str]:
    try:
        pairs = labels_of(options.get("labels"))
    except (SyntaxError, ValueError, AttributeError):
        yield '--labels is neither key=value nor a dictionary such as \'{"team": "vision"}\''
        return
    keys = [key for key, _ in pairs]
    if len(pairs) > MAX_LABELS:
        yield f"--labels: {len(pairs)} labels, and a job has {MAX_LABELS} at most"
    for key, value in pairs:
        if not LABEL_KEY.fullmatch(key):
            yield f"--labels: the key '{key}' is not 1 to 63 of a-z 0-9 _ -, beginning with a letter"
        if not LABEL_VALUE.fullmatch(value):
            yield f"--labels: the value '{value}' of '{key}' is not up to 63 of a-z 0-9 _ -"
        if keys.count(key) > 1:
            yield f"--labels: the key '{key}' is given {keys.count(key)} times"
            return


def _check_subnetwork(options: Options) -> Iterator[str]:
    value = options.get("subnetwork")
    if value is None:
        return
    zone = ZONE.fullmatch(str(options.get("worker_zone") or ""))
    region = options.get("worker_region") or (zone[1] if zone else options["region"])
    match = SUBNETWORK.fullmatch(value)
    if match is None:
        yield f"--subnetwork '{value}' is not regions/REGION/subnetworks/NAME, nor its whole URL"
    elif match[1] != region:
        yield f"--subnetwork '{value}' lies in {match[1]}, and the workers are in {region}"


CHECKS: Sequence[Callable[[Options], Iterator[str]]] = (
    _check_refused,
    _check_forms,
    _check_region,
    _check_buckets,
    _check_machine,
    _check_workers,
    _check_labels,
    _check_subnetwork,
)


def job_name(spec: str, build_key: str) -> str:
    """Names the jobs of a build: the same for each of them, so that a later driver finds one that still runs."""
    plain = re.sub("[^a-z0-9]+", "-", spec.lower()).strip("-")
    plain = plain[: NAME_LENGTH - len(f"{PREFIX}--") - KEY_LENGTH].strip("-")
    return "-".join(part for part in (PREFIX, plain, build_key[:KEY_LENGTH]) if part)


def is_job_of(name: str, build_key: str) -> bool:
    """Whether a job's name is that of a build's jobs."""
    return name.startswith(f"{PREFIX}-") and name.endswith(f"-{build_key[:KEY_LENGTH]}")


def console_url(region: str, job: str) -> str:
    """Returns the URL of a job's page in Google's console, which knows the project; messages hide a URL's query."""
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
