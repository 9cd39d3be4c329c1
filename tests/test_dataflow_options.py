"""Options that Dataflow would refuse minutes later are refused here, one line each."""

from typing import Any

import pytest

from recordmill.pipeline.build.runners import dataflow
from recordmill.pipeline.build.runners.job import RunnerError
from tests.messages import raises

GIVEN = {
    "project": "my-project",
    "region": "europe-west1",
    "temp_location": "gs://my-bucket/temp",
    "sdk_container_image": f"europe-west1-docker.pkg.dev/my-project/recordmill/recordmill@sha256:{'0a' * 32}",
}
GOOD: list[tuple[str, Any]] = [
    ("project", "example.com:my-project"),
    ("region", "northamerica-northeast1"),
    ("region", "us-west12"),
    ("worker_region", "us-east5"),
    ("worker_zone", "europe-west1-b"),
    ("temp_location", "gs://my.bucket_1/temp/"),
    ("staging_location", "gs://other-bucket/a/b"),
    ("sdk_container_image", "gcr.io/my-project/recordmill:1.2"),
    ("sdk_container_image", "localhost.localdomain:5000/recordmill"),
    ("machine_type", "n1-standard-4"),
    ("machine_type", "c3-standard-8-lssd"),
    ("machine_type", "a2-highgpu-1g"),
    ("machine_type", "n2d-custom-4-32768-ext"),
    ("machine_type", "custom-1-3840"),
    ("labels", ["team=vision", "empty"]),
    ("labels", ['{"team": "vision", "mass": "1_3kg"}']),
    ("labels", [f"key-{number}=v" for number in range(64)]),
    ("service_account_email", "worker@my-project.iam.gserviceaccount.com"),
    ("service_account_email", "123456-compute@developer.gserviceaccount.com"),
    ("network", "my-network"),
    ("network", "projects/host/global/networks/shared"),
    ("subnetwork", "regions/europe-west1/subnetworks/workers"),
    ("subnetwork", "https://www.googleapis.com/compute/v1/projects/host/regions/europe-west1/subnetworks/workers"),
    ("num_workers", 20),
    ("max_num_workers", 4_000),
]
BAD: list[tuple[str, Any, tuple[str, ...]]] = [
    ("project", "My Project", ("6 to 30 lower-case letters",)),
    ("project", "123456789", ("not its name or number",)),
    ("region", "europe-west1-b", ("a region, such as europe-west1",)),
    ("region", "Europe", ("a region, such as europe-west1",)),
    ("worker_region", "europe", ("a region, such as europe-west1",)),
    ("worker_zone", "europe-west1", ("a zone, such as europe-west1-b",)),
    ("temp_location", "/tmp/temp", ("such as gs://my-bucket/temp",)),
    ("temp_location", "gs://my-bucket", ("such as gs://my-bucket/temp",)),
    ("temp_location", "gs://my-bucket/", ("such as gs://my-bucket/temp",)),
    ("temp_location", "gs://My_Bucket/temp", ("3 to 63 a-z 0-9",)),
    ("staging_location", "gs://google-mine/a", ("no 'google'",)),
    ("staging_location", "gs://192.168.0.1/a", ("such as gs://my-bucket/temp",)),
    ("staging_location", f"gs://{'a' * 64}/a", ("3 to 63 a-z 0-9",)),
    ("sdk_container_image", "recordmill:latest", ("HOST/PROJECT/REPOSITORY/NAME@sha256:DIGEST",)),
    ("sdk_container_image", "gcr.io/p/r@sha256:0a", ("HOST/PROJECT/REPOSITORY/NAME@sha256:DIGEST",)),
    ("machine_type", "highmem", ("n2-highmem-4",)),
    ("machine_type", "e2-medium", ("x86", "n2-highmem-4")),
    ("machine_type", "c4a-highmem-8", ("x86", "n2-highmem-4")),
    ("machine_type", "n2-custom-3-8192", ("n2-custom-4-32768",)),
    ("labels", "Team=vision", ("key=value", "1 to 63 of a-z")),
    ("labels", "team=Vision 1", ("key=value",)),
    ("labels", "{team: vision", ("key=value", "dictionary")),
    ("service_account_email", "worker", ("such as worker@my-project",)),
    ("network", "My Network", ("network's name",)),
    ("subnetwork", "workers", ("regions/REGION/subnetworks/NAME",)),
    ("subnetwork", "regions/us-east1/subnetworks/a", ("in us-east1", "in europe-west1")),
    ("num_workers", 0, ("from 1 to 4,000",)),
    ("max_num_workers", 5_000, ("from 1 to 4,000",)),
    ("number_of_worker_harness_threads", -1, ("number of threads",)),
    ("disk_size_gb", 10, ("30 GB",)),
]
LABELS = [
    (["team=a", "team=b"], ("--labels", "2 labels with 1 keys", "64 at most")),
    ([f"key-{number}=v" for number in range(65)], ("--labels", "65 labels with 65 keys", "64 at most")),
]
REFUSED: list[tuple[str, Any, str]] = [
    ("job_name", "mine", "names its jobs itself"),
    ("template_location", "gs://my-bucket/template", "deploy/dataflow"),
    ("update", True, "streaming job"),
    ("zone", "europe-west1-b", "--worker_zone"),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_a_good_option(name: str, value: object) -> None:
    dataflow.check(dataflow.with_presets(GIVEN | {name: value}))


@pytest.mark.parametrize(("name", "value", "facts"), BAD)
def test_a_bad_option(name: str, value: object, facts: tuple[str, ...]) -> None:
    with raises(RunnerError, f"--{name} '{value}'", *facts):
        dataflow.check(dataflow.with_presets(GIVEN | {name: [value] if name == "labels" else value}))


@pytest.mark.parametrize(("labels", "facts"), LABELS, ids=["a key twice", "too many"])
def test_bad_labels(labels: list[str], facts: tuple[str, ...]) -> None:
    with raises(RunnerError, *facts):
        dataflow.check(dataflow.with_presets(GIVEN | {"labels": labels}))


@pytest.mark.parametrize(("name", "value", "remedy"), REFUSED)
def test_a_refused_option(name: str, value: object, remedy: str) -> None:
    with raises(RunnerError, f"--{name} ", "refused", remedy):
        dataflow.check(dataflow.with_presets(GIVEN | {name: value}))


def test_all_mistakes_are_named_at_once() -> None:
    options = GIVEN | {"region": "europe", "machine_type": "big", "labels": ["A=b"]}
    with pytest.raises(RunnerError) as error:
        dataflow.check(dataflow.with_presets(options))
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize("name", dataflow.REQUIRED)
def test_an_option_is_missing(name: str) -> None:
    options = {key: value for key, value in GIVEN.items() if key != name}
    with raises(RunnerError, "--runner dataflow", f"needs --{name} ", dataflow.REQUIRED[name]):
        dataflow.check(dataflow.with_presets(options))


def test_options_that_exclude_each_other() -> None:
    options = GIVEN | {"worker_region": "europe-west1", "worker_zone": "europe-west1-b"}
    with raises(RunnerError, "--worker_region", "--worker_zone", "leave one out"):
        dataflow.check(options)
    with raises(RunnerError, "--num_workers 9", "--max_num_workers 3"):
        dataflow.check(GIVEN | {"num_workers": 9, "max_num_workers": 3})


def test_the_workers_region_decides_the_subnetwork() -> None:
    options = GIVEN | {"subnetwork": "regions/us-east1/subnetworks/a"}
    dataflow.check(options | {"worker_region": "us-east1"})
    dataflow.check(options | {"worker_zone": "us-east1-c"})


def test_presets() -> None:
    options = dataflow.with_presets(GIVEN)
    assert {name: options[name] for name in dataflow.PRESETS} == dataflow.PRESETS
    assert options["staging_location"] == "gs://my-bucket/temp/staging"
    given = GIVEN | {"machine_type": "n2-highmem-16", "num_workers": 64, "staging_location": "gs://my-bucket/staging"}
    options = dataflow.with_presets(given)
    assert given.items() <= options.items()
    assert options["max_num_workers"] == 64
