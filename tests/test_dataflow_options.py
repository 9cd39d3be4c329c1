"""Options that no build can have are refused before anything is sent, one line each."""

import pytest

from recordmill.pipeline.build.beam import dataflow
from recordmill.pipeline.build.beam.dataflow import DataflowRunner
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.build.runners.job import RunnerError
from tests.messages import raises

GIVEN = {
    "project": "my-project",
    "region": "europe-west1",
    "temp_location": "gs://my-bucket/temp",
    "sdk_container_image": f"europe-west1-docker.pkg.dev/my-project/recordmill/recordmill@sha256:{'0a' * 32}",
}


def check(**options: object) -> None:
    """Checks options as a build does."""
    given = tuple(f"--{name}={value}" for name, value in (GIVEN | options).items())
    DataflowRunner(RunOptions("dataflow", beam_options=given))


@pytest.mark.parametrize("name", ["temp_location", "staging_location"])
@pytest.mark.parametrize("folder", ["/tmp/temp", "gs://my-bucket", "gs://my-bucket/", "gs://My_Bucket/temp"])
def test_a_bad_folder(name: str, folder: str) -> None:
    with raises(RunnerError, f"--{name} '{folder}'", "such as gs://my-bucket/temp"):
        dataflow.check(GIVEN | {name: folder})


@pytest.mark.parametrize("name", dataflow.REFUSED_OPTIONS)
def test_a_refused_option(name: str) -> None:
    with raises(RunnerError, f"--{name} ", "refused", dataflow.REFUSED_OPTIONS[name]):
        dataflow.check(GIVEN | {name: "a"})


@pytest.mark.parametrize("name", dataflow.REQUIRED)
def test_an_option_is_missing(name: str) -> None:
    options = {key: value for key, value in GIVEN.items() if key != name}
    with raises(RunnerError, "--runner dataflow", f"needs --{name} ", dataflow.REQUIRED[name]):
        dataflow.check(options)


def test_beam_refuses_the_others() -> None:
    check()
    with raises(RunnerError, "Invalid Project ID (123456789)", "not project number"):
        check(project="123456789")
    with raises(RunnerError, "worker_region and worker_zone are mutually exclusive", "num_workers (9) cannot exceed"):
        check(worker_region="europe-west1", worker_zone="europe-west1-b", num_workers=9, max_num_workers=3)


def test_presets() -> None:
    for folder in ("gs://my.bucket_1/temp/", "gs://other-bucket/a/b"):
        dataflow.check(GIVEN | {"temp_location": folder})
    options = dataflow.with_presets(GIVEN)
    assert {name: options[name] for name in dataflow.PRESETS} == dataflow.PRESETS
    assert options["staging_location"] == "gs://my-bucket/temp/staging"
    given = GIVEN | {"machine_type": "n2-highmem-16", "num_workers": 64, "staging_location": "gs://my-bucket/staging"}
    options = dataflow.with_presets(given)
    assert given.items() <= options.items()
    assert options["max_num_workers"] == 64
