"""The Terraform files: formatted, references declared, arguments known to the provider, least privilege.

`terraform validate` needs the provider, which cannot be had everywhere. `terraform_arguments.json` holds, of its
version 7, the arguments of the resources that are used: whether each is required, and the blocks inside.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest

FOLDER = Path(__file__).parents[1] / "deploy" / "terraform"
ARGUMENTS = json.loads((Path(__file__).parent / "terraform_arguments.json").read_text())
OF_EVERY_RESOURCE = {"for_each", "count", "depends_on", "lifecycle", "provider"}
REFERENCE = re.compile(r"\b(var|local|google_\w+)\.(\w+)")
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
Block = dict[str, Any]


def _parsed() -> Block:
    """Merges all files: the blocks by their kinds."""
    merged: Block = {}
    for path in sorted(FOLDER.glob("*.tf")):
        with path.open() as file:
            for kind, blocks in hcl2.load(file).items():
                if isinstance(blocks, list):
                    merged.setdefault(kind, []).extend(blocks)
    return _plain(merged)


def _plain(value: Any) -> Any:
    """Removes the quotes and the parser's notes."""
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items() if key not in ("__is_block__", "__comments__")}
    if isinstance(value, list):
        return [_plain(part) for part in value if not (isinstance(part, dict) and "value" in part and len(part) == 1)]
    return value[1:-1] if isinstance(value, str) and TEXT.fullmatch(value) else value


FILES = _parsed()
RESOURCES = [
    (kind, name, body)
    for resource in FILES["resource"]
    for kind, named in resource.items()
    for name, body in named.items()
]


@pytest.mark.skipif(shutil.which("terraform") is None, reason="needs terraform")
def test_the_files_are_formatted() -> None:
    subprocess.run(["terraform", "fmt", "-check", "-diff", FOLDER], check=True)


def test_every_reference_is_declared() -> None:
    declared = {f"var.{name}" for block in FILES["variable"] for name in block}
    declared |= {f"local.{name}" for block in FILES["locals"] for name in block}
    declared |= {f"{kind}.{name}" for kind, name, _ in RESOURCES}
    used = {".".join(match) for text in _texts(FILES) for match in REFERENCE.findall(text)}
    assert used - declared == set()
    assert {name for name in declared if name.startswith("var.")} - used == set()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from (key, *_texts(part))
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


@pytest.mark.parametrize(("kind", "name", "body"), RESOURCES, ids=[f"{kind}.{name}" for kind, name, _ in RESOURCES])
def test_a_resources_arguments(kind: str, name: str, body: Block) -> None:
    assert list(_mistakes(body, ARGUMENTS[kind], f"{kind}.{name}")) == []


def _mistakes(body: Block, known: Block, path: str) -> Iterator[str]:
    for argument in body.keys() - known.keys() - OF_EVERY_RESOURCE:
        yield f"{path} has no argument {argument}"
    for argument, rule in known.items():
        required = rule["required"] if isinstance(rule, dict) else rule
        if required and argument not in body:
            yield f"{path} lacks {argument}"
        if isinstance(rule, dict) and argument in body:
            for block in body[argument]:
                yield from _mistakes(block, rule["block"], f"{path}.{argument}")


def test_least_privilege() -> None:
    """No role writes the project, and only the driver may start jobs, as one of two accounts."""
    roles = {body["role"] for _, _, body in RESOURCES if "role" in body}
    assert roles == {"roles/artifactregistry.reader", "roles/dataflow.developer", "roles/dataflow.worker",
        "roles/iam.serviceAccountUser", "roles/storage.legacyBucketReader", "roles/storage.objectUser",
        "roles/storage.objectViewer"}  # fmt: skip
    projects = {name: body["role"] for kind, name, body in RESOURCES if kind == "google_project_iam_member"}
    assert projects == {"dataflow_worker": "roles/dataflow.worker", "driver_dataflow": "roles/dataflow.developer",
        "launchers": "roles/dataflow.developer"}  # fmt: skip


def test_nothing_is_public() -> None:
    buckets = [body for kind, _, body in RESOURCES if kind == "google_storage_bucket"]
    assert {(body["uniform_bucket_level_access"], body["public_access_prevention"]) for body in buckets} == {
        (True, "enforced")
    }
    (subnetwork,) = (body for kind, _, body in RESOURCES if kind == "google_compute_subnetwork")
    assert subnetwork["private_ip_google_access"] is True
    assert not {kind for kind, _, _ in RESOURCES} & {"google_compute_router_nat", "google_compute_address"}


@pytest.mark.parametrize(("variable", "good", "bad"), [
    ("project", ["my-project"], ["My-project", "123", "my_project"]),
    ("region", ["europe-west1", "us-east5"], ["europe-west1-b", "EU"]),
    ("name", ["recordmill", "rm2"], ["r", "a" * 21, "Recordmill"]),
    ("image", [f"host/p/r@sha256:{'0a' * 32}"], ["host/p/r:latest", "host/p/r@sha256:0a"]),
])  # fmt: skip
def test_a_variables_values(variable: str, good: list[str], bad: list[str]) -> None:
    (body,) = (block[variable] for block in FILES["variable"] if variable in block)
    (regex,) = re.findall(r'regex\("([^"]+)"', body["validation"][0]["condition"])
    assert [value for value in good if not re.search(regex, value)] == []
    assert [value for value in bad if re.search(regex, value)] == []
