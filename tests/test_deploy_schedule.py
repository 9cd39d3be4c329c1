"""deploy/schedule and deploy/terraform/schedule.tf: valid for each scheduler, which handles each exit code."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.spec.model import load_spec
from tests.deployed import DEPLOY, check, checker
from tests.test_deploy_kubernetes import HARDENED

FOLDER = DEPLOY / "schedule"
CRONJOBS = FOLDER / "kubernetes/cronjob.yaml"
FINAL = {ExitCode.ERROR, ExitCode.USAGE, ExitCode.GATE, ExitCode.REJECTS}
"""Exit codes after which a repetition would come to the same."""
AIRFLOW = """
import sys
from pathlib import Path
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.execution_time import macros
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
dag = bag.dags["recordmill_nightly"]
task = dag.get_task("build")
assert (dag.catchup, dag.max_active_runs, task.retries) == (True, 1, 4)
task.render_template_fields({"ds": "2026-11-21", "macros": macros})  # the run of the 21st, at 03:00
print("arguments", *task.arguments)

program = Path(sys.argv[2])
module = sys.modules[type(task).__module__]
module.RECORDMILL = str(program)
ends = {0: None, 1: AirflowFailException, 2: AirflowFailException, 3: AirflowSkipException, 4: AirflowFailException,
        5: AirflowFailException, 75: AirflowException, 143: AirflowException}
for status, end in ends.items():
    program.write_text(f"#!/bin/sh\\nexit {status}\\n")
    program.chmod(0o755)
    try:
        task.execute({})
    except Exception as error:
        assert type(error) is end, (status, error)
    else:
        assert end is None, status
print("ends", *ends)
"""


def parsed(words: list[str]) -> dict[str, Any]:
    """Parses the words after `recordmill` by the command line; fails on an unknown option."""
    command: Any = get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    return dict(command.make_context(None, words).params)


def command_of(container: dict[str, Any]) -> dict[str, Any]:
    """Parses the command of a container, which may stand in a script."""
    words = [*container["command"], *container.get("args", [])]
    if words[0] == "/bin/sh":
        subprocess.run(["sh", "-n", "-c", words[-1]], check=True, timeout=60)
        (line,) = (line for line in words[-1].splitlines() if line.startswith("recordmill"))
        words = shlex.split(line.removesuffix("&"))
    return parsed(words[1:])


def cronjob(name: str) -> dict[str, Any]:
    documents = {each["metadata"]["name"]: each for each in yaml.safe_load_all(CRONJOBS.read_text())}
    return dict(documents[name]["spec"])


@pytest.mark.parametrize("version", ["1.29.0", "1.37.0"])
def test_kubernetes_knows_every_field(version: str) -> None:
    check("kubernetes-validate", "--strict", "--kubernetes-version", version, CRONJOBS)


def test_kubernetes_repeats_what_may_succeed() -> None:
    job = cronjob("recordmill-nightly")["jobTemplate"]["spec"]
    disrupted, final = job["podFailurePolicy"]["rules"]
    assert disrupted["action"] == "Ignore"
    assert final["action"] == "FailJob"
    assert set(final["onExitCodes"]["values"]) == FINAL
    (container,) = job["template"]["spec"]["containers"]
    assert final["onExitCodes"]["containerName"] == container["name"]
    assert command_of(container)["up_to_date_ok"] is True


@pytest.mark.parametrize("name", ["recordmill-nightly", "recordmill-prune"])
def test_no_container_is_root_or_can_become_it_or_writes_outside_its_volumes(name: str) -> None:
    pod = cronjob(name)["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == HARDENED
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    command_of(container)


@pytest.mark.parametrize("flink", [False, True])
@pytest.mark.parametrize(("status", "gateway"), [(0, True), (4, True), (75, False), (4, False)])
def test_the_pods_metrics_go_to_the_gateway_and_its_status_is_the_builds(
    tmp_path: Path, status: int, *, gateway: bool, flink: bool
) -> None:
    """Runs the pod's script with fake programs for `recordmill` and `curl`, which may fail."""
    of_flink = yaml.safe_load((DEPLOY / "flink/build.yaml").read_text())["spec"]
    job = of_flink if flink else cronjob("recordmill-nightly")["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    for name, code in {"recordmill": status, "curl": 7}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\nexit {code}\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "OUTPUT": "s3://b/d/", "PUSHGATEWAY": "http://g" * gateway}
    ended = subprocess.run(
        [*container["command"], *container["args"]], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == status
    build, *push = ended.stdout.splitlines()
    assert build.startswith("recordmill build /spec/dataset.yaml --output s3://b/d/ ")
    assert build.endswith(" --up-to-date-ok --metrics /tmp/metrics.prom")
    pushed = "--upload-file /tmp/metrics.prom http://g/metrics/job/recordmill/dataset/d"  # PUT: of this group alone
    assert [line.endswith(pushed) for line in push] == [True] * gateway


def test_a_pod_that_is_stopped_stops_the_build_and_waits_for_it(tmp_path: Path) -> None:
    (container,) = cronjob("recordmill-nightly")["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (tmp_path / "recordmill").write_text(
        "#!/bin/sh\ntrap 'echo stopped; exit 143' TERM\necho begun\nwhile :; do sleep 0.1; done\n"
    )
    (tmp_path / "recordmill").chmod(0o755)
    pod = subprocess.Popen([*container["command"], *container["args"]],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "OUTPUT": "o", "PUSHGATEWAY": ""}, stdout=subprocess.PIPE,
        text=True)  # fmt: skip
    assert pod.stdout is not None
    assert pod.stdout.readline() == "begun\n"
    pod.terminate()
    assert (pod.stdout.read(), pod.wait(60)) == ("stopped\n", 143)


def test_every_schedule_writes_metrics_and_keeps_ids() -> None:
    """By spans or a frozen analysis; the service of systemd builds what its owner wrote, as the page says."""
    lines = [(FOLDER / name).read_text() for name in ("cron/recordmill", "systemd/recordmill@.service")]
    lines += [(FOLDER / "airflow/recordmill_nightly.py").read_text(), CRONJOBS.read_text()]
    assert all("--metrics" in text for text in [*lines, (DEPLOY / "dataflow/launcher.py").read_text()])
    assert load_spec(str(FOLDER / "kubernetes/dataset.yaml")).is_frozen
    assert all("--span" in text for text in (lines[0], lines[2]))
    page = (FOLDER / "README.md").read_text()
    assert "analysis: frozen" in page
    assert "/var/lib/recordmill/example.prom" in page


def test_the_page_rolls_back_from_kubernetes_as_the_nights_build() -> None:
    page, files = ((FOLDER / "README.md").read_text(),
        yaml.safe_load((FOLDER / "kubernetes/kustomization.yaml").read_text()))  # fmt: skip
    (command,) = re.findall(r"^kubectl .* run rollback (?:.*\\\n)*.*$", page, re.MULTILINE)
    words = shlex.split(command)
    given, (image,) = words[words.index("--") + 1 :], files["images"]
    assert parsed(given[1:])["reason"]
    values = [*files["configMapGenerator"][0]["literals"]]
    assert f"OUTPUT={given[3]}" in values
    (region,) = (word.removeprefix("--env=") for word in words if word.startswith("--env="))
    assert region in values
    name, value = region.split("=")
    asked = "import boto3; print(boto3.Session().region_name)"
    told = subprocess.run([sys.executable, "-c", asked], env={name: value}, capture_output=True, text=True, timeout=60)
    assert told.stdout.strip() == value
    assert f"--image={image['newName']}:{image['newTag']}" in words
    (overrides,) = (word.removeprefix("--overrides=") for word in words if word.startswith("--overrides="))
    assert json.loads(overrides)["spec"]["serviceAccountName"] == "recordmill-nightly"


def test_kustomize_gives_images_spec_and_namespace() -> None:
    assert load_spec(str(FOLDER / "kubernetes/dataset.yaml")).name == "example"
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl, which has kustomize, is not on the PATH")
    command = ["kubectl", "kustomize", FOLDER / "kubernetes"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    jobs = [document for document in yaml.safe_load_all(ended.stdout) if document["kind"] == "CronJob"]
    pods = [job["spec"]["jobTemplate"]["spec"]["template"]["spec"] for job in jobs]
    assert [pod["containers"][0]["image"] for pod in pods] == ["registry.example.com/recordmill:0.1.0"] * 2
    assert {job["metadata"]["namespace"] for job in jobs} == {"recordmill"}


def test_airflow_imports_the_dag_and_ends_the_task_by_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    command = [checker("python"), "-c", AIRFLOW, str(FOLDER / "airflow"), str(tmp_path / "recordmill")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    (arguments,) = re.findall("^arguments (.*)$", ended.stdout, re.MULTILINE)
    assert " --span 2026-11-20" in arguments
    assert arguments.endswith("--metrics /var/lib/recordmill/example.prom")
    assert parsed(arguments.split())["output"] == "s3://example-bucket/datasets/example"
    assert "ends 0 1 2 3 4 5 75 143" in ended.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_knows_every_line(tmp_path: Path) -> None:
    """Another program stands in for ours, as it checks that programs exist."""
    for path in (FOLDER / "systemd").iterdir():
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/recordmill/bin/recordmill", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", *tmp_path.iterdir()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, ""), "a misspelt line is a warning"
    timer = (FOLDER / "systemd/recordmill@.timer").read_text()
    (calendar,) = re.findall("^OnCalendar=(.*)$", timer, re.MULTILINE)
    subprocess.run(["systemd-analyze", "calendar", calendar], check=True, capture_output=True, timeout=60)


def test_systemd_repeats_what_may_succeed() -> None:
    unit = (FOLDER / "systemd/recordmill@.service").read_text()
    values = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert values["SuccessExitStatus"] == str(int(ExitCode.UP_TO_DATE))
    assert values["Restart"] == "on-failure"
    assert {*map(int, values["RestartPreventExitStatus"].split())} == {*FINAL, ExitCode.TERMINATED}
    for line in re.findall("^ExecStart=(.*)$", unit, re.MULTILINE):
        parsed(shlex.split(line)[1:])


def test_cron_knows_every_line() -> None:
    lines = [line for line in (FOLDER / "cron/recordmill").read_text().splitlines() if not line.startswith("#")]
    jobs = [re.split(r"\s+", line, maxsplit=6) for line in lines if not re.match(r"\w+=", line)]
    assert len(jobs) == 2
    for *fields, user, command in jobs:
        assert user == "recordmill"
        check("python", "-c", f"import croniter; croniter.croniter({' '.join(fields)!r})")
        assert not re.search(r"(?<!\\)%", command), "cron takes it for the end of the line"
        shell = command.replace("\\%", "%")
        subprocess.run(["sh", "-n", "-c", shell], check=True, timeout=60)
        parsed(shlex.split(shell.replace("$(date -u -d yesterday +%F)", "2026-11-20").removesuffix(" >/dev/null"))[1:])


def test_cloud_scheduler_launches_the_template_with_its_parameters() -> None:
    """The request of `flexTemplates.launch`; its parameters are those of the template, the image's bytes included."""
    text = (DEPLOY / "terraform/schedule.tf").read_text()
    template = json.loads((DEPLOY / "dataflow/metadata.json").read_text())
    known = {parameter["name"] for parameter in template["parameters"]}
    required = {parameter["name"] for parameter in template["parameters"] if not parameter.get("isOptional")}
    (block,) = re.findall(r"parameters = \{(.*?)\}", text, re.DOTALL)
    given = {*re.findall(r"^\s*(\w+)\s*=", block, re.MULTILINE)}
    assert required <= given <= known
    assert "/flexTemplates:launch" in text
    assert "google_service_account.driver.email" in text, "the template's job runs as the driver"
