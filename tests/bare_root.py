"""Runs the steps of a Dockerfile in bare Debian roots, for a proof where there is no Docker engine.

    python tests/bare_root.py DOCKERFILE FOLDER STAGE

Needs root, debootstrap, unshare, Go, and the package `dockerfile`, which has the parser of Docker's own builder.
FOLDER/NAME becomes the root of each stage that STAGE is made of, and FOLDER/NAME.json has its environment, user,
working folder and entry point. Debian's own Python 3.11 stands in for the base image of Python, and this machine's Go
for that of Go; everything else is done as the file says. Prints each step.
"""

import json
import os
import shutil
import signal
import string
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

CONTEXT = Path(__file__).parents[1]
DEBIAN = ["debootstrap", "--variant=minbase", "--include=ca-certificates,python3,python3-venv", "bookworm"]
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
HOST = "container"
SEARCH_PATH = "/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A step that runs sees the network and the package registries as this machine is set up for them.
SETTINGS = ("PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "UV_DEFAULT_INDEX", "GOPROXY", "GOSUMDB")
# Runs a command in a container's stead: no network but the loopback interface, a root that nobody can write to, /tmp in
# memory, and a folder of the outside as /tmp/data. Arguments: root, user, the folder, then variables and the command.
IN_CONTAINER = f"""
root=$0 user=$1 data=$2
shift 2
hostname {HOST}
ip link set lo up
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
mkdir "$root/tmp/data"
mount --bind "$data" "$root/tmp/data"
exec chroot --userspec="$user" "$root" env -i "$@"
"""
# Arguments: root, user, then variables and the command. The mounts go with the process.
IN_ROOT = """
root=$0 user=$1
shift
mount -t proc proc "$root/proc"
if [ -d "$root/usr/local/go" ]; then mount --bind "$(go env GOROOT)" "$root/usr/local/go"; fi
exec chroot --userspec="$user" "$root" env -i "$@"
"""


@dataclass
class Stage:
    """The root of a stage, and what holds for commands in it."""

    root: str
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    entry_point: list[str] = field(default_factory=list)

    def path(self, inside: str) -> Path:
        return Path(self.root) / os.path.join(self.folder, inside).lstrip("/")


def build(path: Path, folder: Path, target: str) -> None:
    """Makes the root of each stage that `target` is made of."""
    import dockerfile  # of deploy/checks.lock

    commands = list(dockerfile.parse_file(str(path)))
    arguments = dict(command.value[0].split("=", 1) for command in before_stages(commands))
    stages: dict[str, Stage] = {}
    for name, steps in stages_of(commands, target):
        origin = expand(steps[0].value[0], arguments)
        stage = stages[name] = start(folder / name, origin, stages.get(origin))
        for step in steps[1:]:
            print(name, step.cmd, " ".join(step.value), flush=True)
            STEPS[step.cmd](stage, step, stages)
        (folder / f"{name}.json").write_text(json.dumps(asdict(stage)))


def before_stages(commands: list[Any]) -> Iterator[Any]:
    for command in commands:
        if command.cmd == "FROM":
            return
        yield command


def stages_of(commands: list[Any], target: str) -> list[tuple[str, list[Any]]]:
    """Returns name and steps of each stage that `target` needs, in the order of the file."""
    stages: dict[str, list[Any]] = {}
    for command in commands[len(list(before_stages(commands))) :]:
        if command.cmd == "FROM":
            name = command.value[2]
            stages[name] = []
        stages[name].append(command)
    needed = {target}
    for name, steps in reversed(stages.items()):
        if name in needed:
            needed |= {steps[0].value[0]} | {flag.removeprefix("--from=") for step in steps for flag in step.flags}
    return [(name, steps) for name, steps in stages.items() if name in needed]


def start(root: Path, image: str, parent: Stage | None) -> Stage:
    if parent:
        copy(Path(parent.root), root)
        return Stage(str(root), dict(parent.environment), parent.folder, parent.user, list(parent.entry_point))
    base = root.parent / "base"
    if not base.exists():
        subprocess.run([*DEBIAN, str(base)], check=True, stdout=subprocess.DEVNULL)
        (base / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        (base / "etc/hosts").write_text(f"127.0.0.1 localhost {HOST}\n")  # as Docker writes it
    copy(base, root)
    if image.startswith("golang:"):
        (root / "usr/local/go").mkdir()
    return Stage(str(root), {"PATH": SEARCH_PATH})


def copy(source: Path, target: Path) -> None:
    """Copies a file, a link or what a folder holds, as COPY does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    whole = str(source)
    if source.is_dir() and not source.is_symlink():
        target.mkdir(exist_ok=True)
        whole += "/."
    subprocess.run(["cp", "--archive", "--reflink=auto", whole, str(target)], check=True)


def expand(text: str, values: dict[str, str]) -> str:
    return string.Template(text).substitute(values)


def set_argument(stage: Stage, step: Any, stages: dict[str, Stage]) -> None:
    name, value = step.value[0].split("=", 1)
    stage.environment.setdefault(name, value)


def set_environment(stage: Stage, step: Any, stages: dict[str, Stage]) -> None:
    known = dict(stage.environment)
    for name, value in zip(step.value[::2], step.value[1::2], strict=True):
        stage.environment[name] = expand(value, known)


def set_folder(stage: Stage, step: Any, stages: dict[str, Stage]) -> None:
    stage.folder = step.value[0]
    stage.path("").mkdir(parents=True, exist_ok=True)


def set_user(stage: Stage, step: Any, stages: dict[str, Stage]) -> None:
    stage.user = step.value[0]


def set_entry_point(stage: Stage, step: Any, stages: dict[str, Stage]) -> None:
    stage.entry_point = list(step.value)


def copy_files(stage: Stage, step: Any, stages: dict[str, Stage]) -> None:
    *sources, target = step.value
    for source in sources:
        path = stage.path(target) / Path(source).name if target.endswith("/") else stage.path(target)
        if step.flags:
            copy(stages[step.flags[0].removeprefix("--from=")].path(source), path)
        else:
            copy_from_context(source, path)


def copy_from_context(source: str, target: Path) -> None:
    """Copies what git tracks, or a file that it ignores, if `.dockerignore` lets it through."""
    if f"!{source}" not in (CONTEXT / ".dockerignore").read_text().splitlines():
        raise SystemExit(f"COPY {source}: .dockerignore keeps it out of the context")
    tracked = subprocess.run(["git", "ls-files", "--", source], cwd=CONTEXT, check=True, capture_output=True, text=True)
    for name in tracked.stdout.splitlines() or [source]:
        copy(CONTEXT / name, target / Path(name).relative_to(source))


def run(stage: Stage, step: Any, stages: dict[str, Stage]) -> None:
    root = Path(stage.root)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    own_certificates = (root / CERTIFICATES).read_bytes()
    shutil.copy(f"/{CERTIFICATES}", root / CERTIFICATES)
    settings = {name: os.environ[name] for name in SETTINGS if name in os.environ} | {"HOME": "/root"}
    environment = {"SSL_CERT_FILE": f"/{CERTIFICATES}"} | settings | stage.environment
    variables = [f"{name}={value}" for name, value in environment.items()]
    command = ["sh", "-c", f"cd {stage.folder} && {step.value[0]}"]
    inside = ["unshare", "--mount", "--pid", "--fork", "sh", "-ec", IN_ROOT, stage.root, stage.user]
    subprocess.run([*inside, *variables, *command], check=True)
    (root / CERTIFICATES).write_bytes(own_certificates)


def in_container(stage: Stage, data: Path, script: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs a shell script in a stage as a container would, with `data` as /tmp/data; everything ends with it."""
    variables = [f"{name}={value}" for name, value in stage.environment.items()]
    alone = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child"]
    command = [*alone, "sh", "-ec", IN_CONTAINER, stage.root, stage.user, str(data), *variables]
    script = f"cd {stage.folder}; {script}"
    command += ["sh", "-c", script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        finally:  # `--kill-child` is forgotten where the user changes
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


STEPS = {
    "ARG": set_argument,
    "COPY": copy_files,
    "ENTRYPOINT": set_entry_point,
    "ENV": set_environment,
    "RUN": run,
    "USER": set_user,
    "WORKDIR": set_folder,
}

if __name__ == "__main__":
    build(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
