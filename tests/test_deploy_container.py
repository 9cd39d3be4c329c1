"""deploy/container: linted, locked, and tested in bare Debian roots, without a Docker engine."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from recordmill.pipeline.build.runners.worker_environment import TENSORFLOW
from tests import bare_root, every_kind
from tests.conftest import ROWS
from tests.deployed import DEPLOY, ROOT, check, checker
from tests.test_golden import GOLDEN

FOLDER = DEPLOY / "container"
DOCKERFILE = FOLDER / "Dockerfile"
LOCK = FOLDER / "requirements.lock"
JOB_SERVER = ROOT / ".runners/flink/job-server.jar"
SECONDS = 1800.0  # a build takes one or two minutes on an idle machine
POOL = "python -m recordmill.pipeline.build.beam.worker_pool --port 50000"
BEAMS_POOL = "/opt/apache/beam/boot --worker_pool"  # which starts each worker by the image's entry point
ANSWERS = """
import socket, time
for _ in range(300):
    try:
        socket.create_connection(("127.0.0.1", 50000), 1)
        break
    except OSError:
        time.sleep(0.2)
"""


def pins(lock: Path) -> dict[str, str]:
    """The versions of a lock, by package."""
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", lock.read_text(), re.MULTILINE))


def test_the_linter_has_nothing_to_say() -> None:
    check("hadolint", DOCKERFILE)


def test_the_image_has_the_packages_of_the_tests_without_the_tools() -> None:
    image, tested = pins(LOCK), pins(ROOT / "requirements.lock")
    assert image.items() <= tested.items()
    assert {"apache-beam", "tensorflow", "boto3", "google-cloud-storage", "obstore"} <= {*image}
    assert not {"pytest", "moto", "mypy", "ruff"} & {*image}


def test_what_is_installed_has_a_hash_and_a_base_image_a_digest() -> None:
    steps = re.split(r"\n(?=[A-Z]+ )", DOCKERFILE.read_text().replace("\\\n", ""))
    installs = re.findall(r"pip install ([^&\n]*)", "\n".join(step for step in steps if step.startswith("RUN")))
    assert len(installs) == 3
    assert all("--require-hashes" in step or "--offline" in step for step in installs)
    images = re.findall(r"^ARG (\w+)=(\S+[:/]\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
    pinned = {name for name, image in images if re.search(r"@sha256:[0-9a-f]{64}$", image)}
    assert pinned == {name for name, _ in images} - {"FLEX_TEMPLATE_LAUNCHER"}
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(), re.MULTILINE)
    assert all(image.startswith("${") or image == "recordmill" for image in stages)


def test_workers_have_the_locked_beam_and_the_variables_of_the_command() -> None:
    assert f"ARG BEAM_VERSION={pins(LOCK)['apache-beam']}\n" in DOCKERFILE.read_text()
    assert dict(re.findall(r"\b(TF_\w+)=(\S+)", DOCKERFILE.read_text())) == TENSORFLOW


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(name for sources in copies for name in sources.split()) == allowed


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The roots of the image's stages, made by the steps of the Dockerfile."""
    missing = [name for name in ("debootstrap", "unshare", "ip", "go") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"the steps of the image need root, and these programs: {', '.join(missing) or 'all are here'}")
    folder = tmp_path_factory.mktemp("container")
    try:
        target = "flink" if JOB_SERVER.exists() else "recordmill"
        command = [checker("python"), bare_root.__file__, DOCKERFILE, folder, target]
        subprocess.run(command, check=True, timeout=3000)
        yield folder
    finally:
        shutil.rmtree(folder)  # 12 GB


@pytest.fixture(scope="module")
def stage(roots: Path) -> bare_root.Stage:
    """The image of workers."""
    return bare_root.Stage(**json.loads((roots / "recordmill.json").read_text()))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that every user may write to, with the inputs and the spec of the golden dataset."""
    folder = tmp_path_factory.mktemp("data")
    every_kind.make(folder / "in", ROWS, more_images=True)
    spec = every_kind.spec_text("{format: jsonl, path: .}") + every_kind.MORE_IMAGES
    (folder / "in/dataset.yaml").write_text(spec)
    folder.chmod(0o777)
    return folder


@pytest.mark.container
@pytest.mark.timeout(3600)
class TestInBareRoot:
    """The image as a container with a read-only root, without network, as its user."""

    def test_it_is_not_root_and_can_write_to_tmp_alone(self, stage: bare_root.Stage, data: Path) -> None:
        ended = bare_root.in_container(stage, data, "id -u; touch /tmp/a && echo a; touch /opt/a /var/tmp/a", SECONDS)
        assert ended.stdout.split() == ["10001", "a"]
        assert ended.stderr.count("Read-only file system") == 2

    @pytest.mark.parametrize(("name", "pool"), [("local", ""), ("pool", POOL), ("boot", BEAMS_POOL)])
    def test_it_builds_the_golden_bytes(self, name: str, pool: str, stage: bare_root.Stage, data: Path) -> None:
        build = f"recordmill build /tmp/data/in/dataset.yaml --output /tmp/data/{name}"
        if pool:
            external = "--job_endpoint=embed --environment_type=EXTERNAL --environment_config=localhost:50000"
            start = f"{pool} > /tmp/data/{name}.log 2>&1 & python -c {shlex.quote(ANSWERS)}"
            build = f"{start}; {build} --runner PortableRunner -- {external}; status=$?; kill %1; exit $status"
        ended = bare_root.in_container(stage, data, build, SECONDS)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert digests(data / name) == json.loads(GOLDEN.read_text())["files"]

    def test_the_command_of_kubernetes_builds_the_golden_bytes_on_flink(self, roots: Path, data: Path) -> None:
        """A TaskManager with a pool, and the driver of deploy/flink/build.yaml, all in the image `flink`."""
        if not JOB_SERVER.exists():
            pytest.skip(f"there is no {JOB_SERVER}: make flink")
        shutil.copytree(DEPLOY / "flink/local", data / "cluster")
        stage = bare_root.Stage(**json.loads((roots / "flink.json").read_text()))
        driver = yaml.safe_load((DEPLOY / "flink/build.yaml").read_text())["spec"]["template"]["spec"]["containers"][0]
        stage.environment |= {variable["name"]: variable["value"] for variable in driver["env"]}
        stage.environment |= {"OUTPUT": "/tmp/data/flink"}
        command = f"sh -c {shlex.quote(driver['args'][-1].replace('/spec', '/tmp/data/in'))}"
        start = (
            "python /tmp/data/cluster/cluster.py start /tmp/data/run --flink /opt/recordmill --taskmanagers 1 --slots 2"
        )
        script = f"{POOL} & RECORDMILL_FLINK_MASTER=$({start}); {command}"
        ended = bare_root.in_container(stage, data, script, SECONDS)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert digests(data / "flink") == json.loads(GOLDEN.read_text())["files"]


def digests(output: Path) -> dict[str, str]:
    """The digests of the golden dataset's files."""
    (version,) = (output / "versions").iterdir()
    names = json.loads(GOLDEN.read_text())["files"]
    return {name: hashlib.sha256((version / name).read_bytes()).hexdigest() for name in names}
