"""deploy/flink: valid for Kubernetes and the operator, with the safety and sizes of its comments."""

import copy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from recordmill.pipeline.build.beam import worker_pool
from recordmill.pipeline.build.runners.flink_cluster import POOL, pair_for
from recordmill.pipeline.spec.model import load_spec
from tests.deployed import DEPLOY, check

FOLDER = DEPLOY / "flink"
SCHEMA = Path(__file__).with_name("flinkdeployment_schema.yaml")
HARDENED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
VALIDATE = """
import jsonschema, sys, yaml
jsonschema.validate(*(yaml.safe_load(open(path)) for path in sys.argv[1:]))
"""


def documents() -> dict[str, dict[str, Any]]:
    """All resources, by kind and name."""
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    texts = [(FOLDER / name).read_text() for name in kustomization["resources"]]
    found = [document for text in texts for document in yaml.safe_load_all(text)]
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in found}


def cluster() -> dict[str, Any]:
    return documents()["FlinkDeployment/recordmill"]["spec"]


def pool() -> dict[str, Any]:
    return cluster()["taskManager"]["podTemplate"]["spec"]["initContainers"][0]


def pods() -> dict[str, dict[str, Any]]:
    """The specs of all pods; the operator lays a role's template over the common one."""
    common = cluster()["podTemplate"]["spec"]
    return {"build": documents()["Job/recordmill-build"]["spec"]["template"]["spec"], "jobmanager": common,
        "taskmanager": common | cluster()["taskManager"]["podTemplate"]["spec"]}  # fmt: skip


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return pod["containers"] + pod.get("initContainers", [])


def test_kubernetes_knows_every_field(tmp_path: Path) -> None:
    plain = [document for name, document in documents().items() if not name.startswith("FlinkDeployment")]
    for name, pod in pods().items():
        template = copy.deepcopy(pod)
        for container in template["containers"]:
            container.setdefault("image", "flink")
        metadata = {"name": name}
        plain.append({"apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata, "template": {"spec": template}})
    path = tmp_path / "plain.yaml"
    path.write_text(yaml.safe_dump_all(plain))
    for version in ("1.29.0", "1.37.0"):
        check("kubernetes-validate", "--strict", "--kubernetes-version", version, path)


def test_the_operator_knows_every_field(tmp_path: Path) -> None:
    validate_deployment({"spec": cluster()}, tmp_path)


def validate_deployment(document: dict[str, Any], folder: Path) -> None:
    (folder / "schema.yaml").write_text(yaml.safe_dump(strict(yaml.safe_load(SCHEMA.read_text()))))
    (folder / "document.yaml").write_text(yaml.safe_dump(document))
    check("python", "-c", VALIDATE, folder / "document.yaml", folder / "schema.yaml")


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that refuses unknown fields, which the API server would drop in silence."""
    if "properties" not in schema:
        return schema
    properties = {name: strict(value) for name, value in schema["properties"].items()}
    return schema | {"additionalProperties": False, "properties": properties}


@pytest.mark.parametrize("name", ["build", "jobmanager", "taskmanager"])
def test_no_container_is_root_or_can_become_it_or_writes_outside_its_volumes(name: str) -> None:
    pod = pods()[name]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(pod):
        assert HARDENED.items() <= container["securityContext"].items()
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_every_mounted_volume_is_there_and_every_folder_that_grows_has_an_end() -> None:
    for pod in pods().values():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for container in containers(pod) for mount in container["volumeMounts"]} <= {*volumes}
        assert all("sizeLimit" in volume["emptyDir"] for volume in volumes.values() if "emptyDir" in volume)


def test_each_taskmanager_has_a_pool_of_its_own_as_wide_as_its_slots() -> None:
    slots = int(cluster()["flinkConfiguration"]["taskmanager.numberOfTaskSlots"])
    assert slots == int(pool()["resources"]["requests"]["cpu"])
    assert int(pool()["resources"]["limits"]["memory"].removesuffix("Gi")) >= slots + 1
    assert pool()["restartPolicy"] == "Always", "else Flink would wait until the pool ends"
    assert {"name": "RECORDMILL_WORKER_THREADS", "value": "1"} in pool()["env"]


def test_the_driver_names_the_pool_and_the_cluster_that_are_there() -> None:
    environment = {item["name"]: item["value"] for item in pods()["build"]["containers"][0]["env"]}
    port = pool()["command"][-1]
    assert pool()["command"][:3] == ["python", "-m", worker_pool.__name__]
    assert environment["RECORDMILL_FLINK_WORKERS"] == f"127.0.0.1:{port}"
    assert POOL.fullmatch(environment["RECORDMILL_FLINK_WORKERS"])
    assert f"('127.0.0.1', {port})" in pool()["startupProbe"]["exec"]["command"][-1]
    assert environment["RECORDMILL_FLINK_MASTER"] == "recordmill-rest:8081", "the operator's service: NAME-rest"
    assert "http://recordmill-rest:8081/" in pods()["build"]["initContainers"][0]["command"][-1]


def test_flink_never_restarts_a_job_and_is_a_version_that_was_run() -> None:
    configuration = cluster()["flinkConfiguration"]
    assert configuration["restart-strategy.type"] == "none"
    assert all(isinstance(value, str) for value in configuration.values())
    pair = pair_for(cluster()["flinkVersion"].removeprefix("v").replace("_", "."))
    assert pair is not None
    assert pair.was_run
    images = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["images"]
    assert next(image["newTag"] for image in images if image["name"] == "flink").startswith(pair.flink)


def test_only_pods_of_the_build_reach_flink() -> None:
    policies = [document["spec"] for name, document in documents().items() if name.startswith("NetworkPolicy")]
    assert all(policy["policyTypes"] == ["Ingress"] for policy in policies)
    guarded = [policy["podSelector"]["matchLabels"] for policy in policies]
    labels = cluster()["podTemplate"]["metadata"]["labels"]
    build = documents()["Job/recordmill-build"]["spec"]["template"]["metadata"]["labels"]
    assert labels in guarded
    assert build in guarded
    rest = documents()["NetworkPolicy/recordmill-flink-rest"]["spec"]["ingress"][0]
    assert rest["from"][0]["podSelector"]["matchLabels"] == build
    assert rest["ports"] == [{"port": 8081}]


def test_kustomize_gives_every_container_its_image() -> None:
    assert load_spec(str(FOLDER / "dataset.yaml")).name == "example"
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl, which has kustomize, is not on the PATH")
    ended = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True, timeout=60, check=True)
    rendered = {document["kind"]: document for document in yaml.safe_load_all(ended.stdout)}
    deployment = rendered["FlinkDeployment"]["spec"]
    worker = deployment["taskManager"]["podTemplate"]["spec"]["initContainers"][0]
    driver = rendered["Job"]["spec"]["template"]["spec"]["containers"][0]
    assert deployment["image"] == "flink:1.19.3-java17"
    assert worker["image"] == "registry.example.com/recordmill:0.1.0"
    assert driver["image"] == "registry.example.com/recordmill-flink:0.1.0"
    assert {document["metadata"]["namespace"] for document in rendered.values()} == {"recordmill"}
