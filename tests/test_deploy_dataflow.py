"""The Flex Template: its parameters, its spec in gcloud's format, and its launcher up to its job."""

import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from deploy.dataflow import launcher
from recordmill.pipeline.build.beam import dataflow
from tests.messages import raises

FOLDER = Path(__file__).parents[1] / "deploy" / "dataflow"
METADATA = json.loads((FOLDER / "metadata.json").read_text())
PARAMETERS = {parameter["name"]: parameter for parameter in METADATA["parameters"]}
IMAGE = f"europe-west1-docker.pkg.dev/my-project/recordmill/recordmill@sha256:{'0a' * 32}"
VALUES: dict[str, tuple[list[str], list[str]]] = {
    "spec": (["gs://my-bucket/specs/emoji.yaml", "gs://my.bucket_1/a/b.yml"], ["/tmp/emoji.yaml",
     "gs://my-bucket/emoji.json", "gs://B/emoji.yaml", "s3://my-bucket/emoji.yaml"]),
    "output": (["gs://my-bucket/datasets/emoji"], ["gs://my-bucket", "gs://my-bucket/", "out"]),
    "sdk_container_image": ([IMAGE], ["recordmill:latest", IMAGE.partition("@")[0], f"{IMAGE}0"]),
    "build_service_account": (["worker@my-project.iam.gserviceaccount.com"], ["worker", "ada@example.com"]),
    "build_machine_type": (["n2-highmem-4", "n2-custom-4-32768", "a2-highgpu-1g"], ["highmem", "N2-highmem-4"]),
    "build_max_workers": (["1", "4000"], ["0", "-1", "many", "12345"]),
    "build_labels": (["team=vision", "team=vision,stage="], ["team", "Team=vision", "team=vision,", "team=a b"]),
}  # fmt: skip
LAUNCHED = [  # as the service's launcher passes them
    "--spec=gs://my-bucket/specs/emoji.yaml",
    "--output=gs://my-bucket/datasets/emoji",
    f"--sdk_container_image={IMAGE}",
    "--build_service_account=worker@my-project.iam.gserviceaccount.com",
    "--build_labels=team=vision,stage=test",
    "--runner=DataflowRunner",
    "--project=my-project",
    "--region=europe-west1",
    "--temp_location=gs://my-bucket/temp",
    "--staging_location=gs://my-bucket/staging",
    "--job_name=emoji-1",
    "--service_account_email=driver@my-project.iam.gserviceaccount.com",
    "--subnetwork=regions/europe-west1/subnetworks/workers",
    "--no_use_public_ips",
    "--template_location=gs://my-bucket/staging/template_launches/1/job_object",
]


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_values_of_a_parameter(name: str) -> None:
    (regex,), (good, bad) = PARAMETERS[name]["regexes"], VALUES[name]
    assert regex.startswith("^")
    assert regex.endswith("$")
    assert [value for value in good if not re.search(regex, value)] == []
    assert [value for value in bad if re.search(regex, value)] == []


def test_the_launcher_has_every_parameter() -> None:
    required = {name for name, parameter in PARAMETERS.items() if not parameter.get("isOptional")}
    values = [f"--{name}={good[0]}" for name, (good, _) in VALUES.items()]
    parsed, rest = launcher.parse(values)
    assert rest == []
    assert vars(parsed) == {name: good[0] for name, (good, _) in VALUES.items()}
    parsed, _ = launcher.parse([value for value in values if value[2:].partition("=")[0] in required])
    assert {name for name, value in vars(parsed).items() if value} == required


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="needs gcloud")
def test_gcloud_takes_the_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    command = ["gcloud", "dataflow", "flex-template", "build", "gs://my-bucket/templates/recordmill.json"]
    options = ["--sdk-language=PYTHON", f"--metadata-file={FOLDER / 'metadata.json'}", "--project=my-project"]
    answer = subprocess.run([*command, f"--image={IMAGE}", *options, "--print-only", "--format=json"],
        capture_output=True, text=True, check=True)  # fmt: skip
    spec = json.loads(answer.stdout)
    spec = json.loads(spec) if isinstance(spec, str) else spec
    assert (spec["image"], spec["sdkInfo"]) == (IMAGE, {"language": "PYTHON"})
    assert spec["metadata"] == METADATA


def test_the_drivers_command_passes_the_checks() -> None:
    parameters, rest = launcher.parse(LAUNCHED)
    command = launcher.driver_command(parameters, PipelineOptions(rest))
    start = ["build", "gs://my-bucket/specs/emoji.yaml", "--output", "gs://my-bucket/datasets/emoji"]
    assert command[: command.index("--") + 1] == [*start, "--runner", "dataflow", "--metrics", "metrics.prom", "--"]
    options = PipelineOptions(command[command.index("--") + 1 :]).get_all_options(drop_default=True)
    dataflow.check(dataflow.with_presets(options))
    assert options["service_account_email"] == "worker@my-project.iam.gserviceaccount.com"
    assert options["labels"] == ["team=vision", "stage=test"]
    assert "template_location" not in options


def test_the_launcher_writes_the_job(tmp_path: Path) -> None:
    """The service reads the job's description where `--template_location` says; nothing is submitted."""
    local = {"--temp_location": tmp_path, "--staging_location": tmp_path, "--template_location": tmp_path / "job"}
    arguments = [argument for argument in LAUNCHED if argument.partition("=")[0] not in local]
    arguments += [f"{name}={value}" for name, value in local.items()]
    arguments += ["--no_auth", "--dataflow_endpoint=http://localhost:1"]
    subprocess.run([sys.executable, FOLDER / "launcher.py", *arguments], check=True, capture_output=True)
    environment = json.loads((tmp_path / "job").read_text())["environment"]
    (pool,) = environment["workerPools"]
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [IMAGE]
    assert (pool["numWorkers"], pool["numThreadsPerWorker"]) == (1, 1)
    assert pool["machineType"] == launcher.DRIVER_MACHINE
    assert environment["serviceAccountEmail"] == "driver@my-project.iam.gserviceaccount.com"
    assert pool["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert (tmp_path / "pipeline.pb").is_file()


def test_the_driver_runs_with_its_spec(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "emoji.yaml").write_text("name: emoji\nsource: {format: csv, path: missing.csv}\nfeatures: {}\n")
    command = ["build", str(tmp_path / "emoji.yaml"), "--output", str(tmp_path / "out"), "--metrics", launcher.METRICS]
    with caplog.at_level(logging.INFO), raises(RuntimeError, "status 1", "dataset.yaml", "features"):
        launcher.run_driver(command)
    assert any(message.startswith("recordmill_build_exit_code") for message in caplog.messages)
