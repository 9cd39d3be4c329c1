"""Starts and stops a Flink cluster on this machine: one JobManager, several TaskManagers.

    python cluster.py start RUN [--flink FOLDER] [--taskmanagers 2] [--slots 1] [--hide FOLDER]
    python cluster.py stop RUN

FOLDER is what `prepare.py` made. RUN is an empty folder: it gets the logs, the configuration and `cluster.json`, with
the address of the cluster and the id of every process. `start` prints the address, for `--flink-master`, once all slots
are there. Flink's ports are on the loopback address; Beam's Java side opens more: docs/security.md.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
OPENED = (
    "lang lang.reflect io net nio text time util util.concurrent util.concurrent.atomic util.concurrent.locks".split()
)
START_SECONDS = 180
STOP_SECONDS = 20
# Sizes are given one by one, since the scripts of Flink's distribution, which divide a process' size, are not here.
CONFIGURATION = """\
jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
taskmanager.host: 127.0.0.1
taskmanager.bind-host: 127.0.0.1
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: {slots}.0
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.task.heap.size: 320m
taskmanager.memory.task.off-heap.size: 64m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.memory.managed.size: 192m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
# One task of a small job on each TaskManager, not all of them on the first.
cluster.evenly-spread-out-slots: true
# A job that failed begins anew with the driver's next attempt; Python workers do not survive Flink's own restart.
restart-strategy.type: none
# A killed TaskManager is missed after this time; a busy machine needs more than a second to answer.
heartbeat.interval: 3000
heartbeat.timeout: 20000
# Beam's classes are on the class path of the cluster, and a job's jar brings them again.
classloader.resolve-order: parent-first
io.tmp.dirs: {run}/tmp
"""
# A TaskManager's heap: of its tasks and of Flink. Its direct memory: both off-heap parts and the network's.
HEAP = {JOB_MANAGER: "-Xmx384m", TASK_MANAGER: "-Xmx448m"}
JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxMetaspaceSize=256m", "-XX:MaxDirectMemorySize=256m"]


def start(run: Path, flink: Path, taskmanagers: int, slots: int, hide: Path | None) -> str:
    """Starts a cluster, and returns its address once every slot is there."""
    if not (flink / "job-server.jar").exists():
        sys.exit(f"{flink} has no job-server.jar: run `make flink`, or prepare.py")
    if (run / "cluster.json").exists():
        sys.exit(f"{run} has a cluster already: stop it first, or name another folder")
    (run / "tmp").mkdir(parents=True, exist_ok=True)
    rest, rpc = _free_port(8081), _free_port(6123)
    (run / "config.yaml").write_text(CONFIGURATION.format(run=run, rest=rest, rpc=rpc, slots=slots))
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hide)] if hide else []
    processes = {"jobmanager": _java(run, flink, JOB_MANAGER, "jobmanager", [])}
    for number in range(1, taskmanagers + 1):
        name = f"taskmanager-{number}"
        processes[name] = _java(run, flink, TASK_MANAGER, name, hidden)
    address, pids = f"127.0.0.1:{rest}", {name: process.pid for name, process in processes.items()}
    (run / "cluster.json").write_text(json.dumps({"address": address, "processes": pids}, indent=1))
    _wait(run, address, taskmanagers, processes)
    return address


def stop(run: Path) -> None:
    """Ends the cluster of a folder, with the workers, which are in the process groups of their TaskManagers."""
    if not (run / "cluster.json").exists():
        sys.exit(f"{run} has no cluster")
    groups = json.loads((run / "cluster.json").read_text())["processes"].values()
    for group in groups:
        _signal(group, signal.SIGTERM)
    limit = time.monotonic() + STOP_SECONDS
    while any(_signal(group, 0) for group in groups) and time.monotonic() < limit:
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # after a failed start they are this process' own, and stay until asked for
        time.sleep(0.1)
    for group in groups:
        _signal(group, signal.SIGKILL)
    (run / "cluster.json").unlink()


def _java(run: Path, flink: Path, main_class: str, name: str, prefix: list[str]) -> subprocess.Popen[bytes]:
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    logging = f"-Dlog4j.configurationFile={HERE / 'log4j.properties'}"
    java = ["java", HEAP[main_class], *JVM, *opened, logging, "-cp", str(flink / "job-server.jar")]
    with open(run / f"{name}.log", "ab") as log:
        return subprocess.Popen(
            [*prefix, *java, main_class, "--configDir", str(run)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _wait(run: Path, address: str, taskmanagers: int, processes: dict[str, subprocess.Popen[bytes]]) -> None:
    limit = time.monotonic() + START_SECONDS
    while _registered(address) < taskmanagers:
        ended = [name for name, process in processes.items() if process.poll() is not None]
        if ended or time.monotonic() > limit:
            stop(run)
            name = ended[0] if ended else "jobmanager"
            sys.exit(f"no cluster{f': {name} ended' if ended else ''}; see {run / f'{name}.log'}")
        time.sleep(0.2)


def _registered(address: str) -> int:
    with suppress(OSError), urllib.request.urlopen(f"http://{address}/v1/taskmanagers", timeout=5) as answer:
        return len(json.load(answer)["taskmanagers"])
    return 0


def _free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    sys.exit("there is no free port on 127.0.0.1")


def _signal(group: int, number: int) -> bool:
    """Sends a signal to a group of processes, 0 to send none; returns whether the group exists."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)
        return True
    return False


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("run", type=Path)
    parser.add_argument("--flink", type=Path, default=HERE.parents[2] / ".runners/flink", help="made by prepare.py")
    parser.add_argument("--taskmanagers", type=int, default=2)
    parser.add_argument("--slots", type=int, default=1, help="of each TaskManager")
    parser.add_argument("--hide", type=Path, help="a folder that TaskManagers and workers see empty (needs root)")
    given = parser.parse_args()
    if given.action == "stop":
        stop(given.run)
    else:
        print(start(given.run.resolve(), given.flink.resolve(), given.taskmanagers, given.slots, given.hide))


if __name__ == "__main__":
    main()
