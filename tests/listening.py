"""The sockets at which processes listen, sampled while they run."""

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address

import psutil

PORT = re.compile(r"[\da-f.:]+ \d+")
Socket = tuple[str, str]
"""A process' command, and an IP address with its port, or the path of a Unix socket."""


def listening(processes: Iterable[psutil.Process]) -> set[Socket]:
    """The sockets of processes that take data from whoever connects or sends it."""
    found = set()
    for process in processes:
        with suppress(psutil.Error):
            program = " ".join(process.cmdline())
            for one in process.net_connections("all"):
                if one.raddr or not one.laddr:
                    continue
                found.add((program, one.laddr if isinstance(one.laddr, str) else _place(*one.laddr)))
    return found


def sampled(root: psutil.Process, is_running: Callable[[], bool]) -> set[Socket]:
    """All sockets at which a process and those below it listen, until it ends."""
    found: set[Socket] = set()
    while is_running():
        with suppress(psutil.Error):
            found |= listening([root, *root.children(recursive=True)])
        time.sleep(0.3)  # a look takes longer than a port needs to appear
    return found


def reachable_from_outside(sockets: Iterable[Socket]) -> set[Socket]:
    """Those at which other machines can knock: IP addresses other than the loopback's."""
    return {socket for socket in ports(sockets) if not ip_address(socket[1].split()[0]).is_loopback}


def ports(sockets: Iterable[Socket]) -> set[Socket]:
    """Those of IP, without Unix sockets."""
    return {socket for socket in sockets if PORT.fullmatch(socket[1])}


def _place(ip: str, port: int) -> str:
    return f"{ip.removeprefix('::ffff:')} {port}"
