"""The options of Dataflow that the real service would refuse, minutes later: refused here, one line each."""

import re
from typing import Any

import pytest

from recordmill.pipeline.build.runners import dataflow
from recordmill.pipeline.build.runners.job import RunnerError

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
BAD: list[tuple[str, Any, str]] = [
    ("project", "My Project", r"--project 'My Project' is not a project's id: 6 to 30 lower-case"),
    ("project", "123456789", "not its name or number"),
    ("region", "europe-west1-b", "--region 'europe-west1-b' is not a region, such as europe-west1"),
    ("region", "Europe", "--region 'Europe' is not a region, such as europe-west1"),
    ("worker_region", "europe", "--worker_region 'europe' is not a region"),
    ("worker_zone", "europe-west1", "--worker_zone 'europe-west1' is not a zone, such as europe-west1-b"),
    ("temp_location", "/tmp/temp", "--temp_location '/tmp/temp' is not a folder of a bucket"),
    ("temp_location", "gs://my-bucket", "is not a folder of a bucket, such as gs://my-bucket/temp"),
    ("temp_location", "gs://my-bucket/", "is not a folder of a bucket"),
    ("temp_location", "gs://My_Bucket/temp", "'gs://My_Bucket/temp' .* a bucket's name has 3 to 63 a-z 0-9"),
    ("staging_location", "gs://google-mine/a", "--staging_location 'gs://google-mine/a' is not .* no 'google'"),
    ("staging_location", "gs://192.168.0.1/a", "is not a folder of a bucket"),
    ("staging_location", f"gs://{'a' * 64}/a", "is not a folder of a bucket"),
    ("sdk_container_image", "recordmill:latest", "--sdk_container_image 'recordmill:latest' is not an image with its"),
    ("sdk_container_image", "gcr.io/p/r@sha256:0a", "is not an image with its registry"),
    (
        "machine_type",
        "highmem",
        "--machine_type 'highmem' is not an x86 machine .* n2-highmem-4",
    ),
    ("machine_type", "e2-medium", "is not an x86 machine with cores of its own and the memory for TensorFlow"),
    ("machine_type", "c4a-highmem-8", "is not an x86 machine"),
    ("machine_type", "n2-custom-3-8192", "is not an x86 machine .* n2-custom-4-32768"),
    ("labels", ["Team=vision"], "--labels 'Team=vision' is not key=value, nor a dictionary, of 1 to 63 of a-z"),
    ("labels", ["team=Vision 1"], "--labels 'team=Vision 1' is not key=value"),
    ("labels", ["team=a", "team=b"], "--labels: 2 labels with 1 keys: a job has 64 at most, each key once"),
    ("labels", [f"key-{number}=v" for number in range(65)], "--labels: 65 labels with 65 keys: a job has 64 at most"),
    ("labels", ["{team: vision"], "--labels '{team: vision' is not key=value, nor a dictionary"),
    ("service_account_email", "worker", "--service_account_email 'worker' is not a service account, such as worker@"),
    ("network", "My Network", "--network 'My Network' is not a network's name"),
    ("subnetwork", "workers", "--subnetwork 'workers' is not regions/REGION/subnetworks/NAME"),
    ("subnetwork", "regions/us-east1/subnetworks/a", "lies in us-east1, and the workers are in europe-west1"),
    ("num_workers", 0, "--num_workers '0' is not a number of machines from 1 to 4,000"),
    ("max_num_workers", 5_000, "--max_num_workers '5000' is not a number of machines"),
    ("number_of_worker_harness_threads", -1, "--number_of_worker_harness_threads '-1' is not a number of threads"),
    ("disk_size_gb", 10, "--disk_size_gb '10' is not the size of a disk for the image"),
    ("job_name", "mine", "--job_name is refused: a build names its jobs itself, so that a later driver finds them"),
    ("template_location", "gs://my-bucket/template", "--template_location is refused: a classic template holds one"),
    ("update", True, "--update is refused: only a streaming job can be updated"),
    ("zone", "europe-west1-b", "--zone is refused: Dataflow calls it --worker_zone now"),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_a_good_option(name: str, value: object) -> None:
    dataflow.check(dataflow.with_presets(GIVEN | {name: value}))


@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_a_bad_option(name: str, value: object, message: str) -> None:
    with pytest.raises(RunnerError, match=message):
        dataflow.check(dataflow.with_presets(GIVEN | {name: value}))


def test_all_mistakes_are_named_at_once() -> None:
    options = GIVEN | {"region": "europe", "machine_type": "big", "labels": ["A=b"]}
    with pytest.raises(RunnerError) as error:
        dataflow.check(dataflow.with_presets(options))
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize("name", dataflow.REQUIRED)
def test_an_option_is_missing(name: str) -> None:
    options = {key: value for key, value in GIVEN.items() if key != name}
    with pytest.raises(RunnerError, match=re.escape(f"--runner dataflow needs --{name} after the --: ")):
        dataflow.check(dataflow.with_presets(options))


def test_options_that_exclude_each_other() -> None:
    options = GIVEN | {"worker_region": "europe-west1", "worker_zone": "europe-west1-b"}
    with pytest.raises(RunnerError, match="--worker_region and --worker_zone exclude each other"):
        dataflow.check(options)
    with pytest.raises(RunnerError, match="--num_workers 9 is more than --max_num_workers 3"):
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
