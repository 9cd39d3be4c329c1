"""Decodes images in separate processes: a decoder crash loses one image, not the worker.

A process with the decoders loaded (`images.isolated_decoder`) forks one for each thread, and replaces those that died.
They have memory and time limits and a minimal environment, and talk over sockets: length-prefixed bytes, no pickles.
Needs POSIX; the memory limit, Linux.

    isolation = Isolation()
    isolation.decodable(data, options)  # as pipeline.build.images.transcode.decodable
"""

import functools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from recordmill.pipeline.build.images.deep_files import wanted_pixels
from recordmill.pipeline.build.images.transcode import UndecodableError, require_decoder
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.parallel import waiting_pair
from recordmill.transforms.images.image_header import FULL_SCANS, NAMED, ImageError, check_header

PROCESS = "recordmill.pipeline.build.images.isolated_decoder"
DECODER = f"{PROCESS}:decode"
CPU_SECONDS, PIXELS_A_SECOND = 10, 10_000_000  # per image, plus a second for every so many pixels
WALL = 6  # times as long on a busy machine
START_SECONDS = 120  # to load the decoders
ANSWER_BYTES = 1 << 31  # the largest PNG
INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
SETTINGS = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",  # as in `pipeline.cli.session`
    "TF_NUM_INTRAOP_THREADS": "1",  # threads' stacks count as address space
    "TF_NUM_INTEROP_THREADS": "1",
    "PYTHONSAFEPATH": "1",
    "MALLOC_ARENA_MAX": "1",
}
AS_IS, PNG, REJECT = b"=", b"p", b"r"
"""First byte of an answer: the image is fine; the bytes of a PNG follow; or a reason, a NUL and a message."""
COMMAND = struct.Struct("<q")
FORK = 0
"""The command, with a socket, to fork; any other is a process to end. The answer is its number or its exit code."""


class IsolationError(UserError):
    """The process that forks decoders does not start."""


class Isolation:
    """Decodes images in other processes; thread-safe."""

    def __init__(self, decoder: str = DECODER, seconds: int = CPU_SECONDS, wall: float = WALL) -> None:
        """Takes the decoder's `module:function`, and a small image's limits: CPU seconds, elapsed time per CPU time."""
        self._decoder, self._seconds, self._wall = decoder, seconds, wall
        self._idle: list[_Decoder] = []
        self._starting = threading.Lock()
        self._zygote: _Zygote | None = None

    def decodable(self, data: bytes, options: Mapping[str, Any]) -> bytes:
        """Returns the bytes of `transcode.decodable`, after decoding the image once without harm.

        Raises:
            ImageError, MissingPluginError: as there; `too_slow`: beyond the time limit.
            UndecodableError: as there; or the decoder's process ended, by the image or for lack of memory.
            IsolationError: no process can be started.
        """
        header = check_header(data, options["max_pixels"])
        require_decoder(data, NAMED[header.format], options)
        wanted, pixels = wanted_pixels(options), header.width * header.height
        pixels = FULL_SCANS * options["max_pixels"] if wanted.pages == "all" else pixels
        seconds = self._seconds + pixels * max(1, wanted.planes) // PIXELS_A_SECOND
        decoder = self._idle.pop() if self._idle else self._fork()
        decoder.channel.settimeout(seconds * self._wall)
        try:
            send(decoder.channel, json.dumps([options, seconds]).encode() + b"\n" + data)
            answer = receive(decoder.channel)
        except OSError as error:
            decoder.channel.close()
            status = decoder.zygote.end(decoder.pid)
            raise _fault(status, header.format, seconds, isinstance(error, TimeoutError)) from None
        self._idle.append(decoder)
        kind, rest = answer[:1], answer[1:]
        if kind == REJECT:
            reason, _, message = rest.decode().partition("\0")
            raise (UndecodableError if reason == "undecodable_image" else ImageError)(reason, message)
        return data if kind == AS_IS else rest

    def _fork(self) -> "_Decoder":
        with self._starting:
            if self._zygote is None:
                self._zygote = _Zygote(self._decoder)
            try:
                return self._zygote.fork()
            except OSError:
                self._zygote.close()
                self._zygote = None
        raise IsolationError("the process that decodes images for --isolated ended; run the same command again")

    def close(self) -> None:
        """Ends all processes; they end by themselves with this one."""
        self._idle.clear()
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None


@functools.cache
def shared_isolation() -> Isolation:
    """Returns the isolation shared by all image readers of this process."""
    return Isolation(DECODER)


def _fault(status: int, form: str, seconds: int, is_late: bool) -> ImageError:
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"status {status}"
    if is_late or name == "SIGXCPU":
        return UndecodableError("too_slow", f"the {form} was not decoded in {seconds} s of CPU time")
    return UndecodableError("undecodable_image", f"the {form} made its decoder crash ({name}), or memory was short")


class _Decoder(NamedTuple):
    """A process that decodes images one by one."""

    zygote: "_Zygote"
    pid: int
    channel: socket.socket


class _Zygote:
    """The process that forks decoders; ends them, and itself, when its socket is closed."""

    def __init__(self, decoder: str) -> None:
        """Starts it, and waits until the decoders are loaded. Raises: IsolationError: it does not start."""
        self._lock = threading.Lock()
        self._control, theirs = waiting_pair()
        command = [sys.executable, "-m", PROCESS, str(theirs.fileno()), decoder]
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ} | SETTINGS
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._control.settimeout(START_SECONDS)
        try:
            _receive_all(self._control, 1)
        except OSError as error:
            self.close()
            raise IsolationError(f"the process that decodes images for --isolated does not start: {error}") from None

    def fork(self) -> _Decoder:
        """Starts a decoder. Raises: OSError: the process has ended."""
        ours, theirs = waiting_pair()
        with theirs, self._lock:
            socket.send_fds(self._control, [COMMAND.pack(FORK)], [theirs.fileno()])
            return _Decoder(self, self._answer(), ours)

    def end(self, pid: int) -> int:
        """Ends a decoder; returns its exit code, a negative signal number if killed; 0 if this process ended, too."""
        with self._lock, suppress(OSError):
            self._control.sendall(COMMAND.pack(pid))
            return self._answer()
        return 0

    def _answer(self) -> int:
        return int(COMMAND.unpack(_receive_all(self._control, COMMAND.size))[0])

    def close(self) -> None:
        """Ends it and its decoders."""
        self._control.close()
        self._process.wait()


def send(channel: socket.socket, data: bytes) -> None:
    """Sends length-prefixed bytes."""
    channel.sendall(struct.pack("<Q", len(data)))
    channel.sendall(data)


def receive(channel: socket.socket) -> bytes:
    """Receives length-prefixed bytes. Raises: OSError: the other end is closed, or the length is too large."""
    (size,) = struct.unpack("<Q", _receive_all(channel, 8))
    if size > ANSWER_BYTES:
        raise ConnectionError(f"{size} bytes were announced")
    return _receive_all(channel, size)


def _receive_all(channel: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = channel.recv_into(view)
        if not count:
            raise ConnectionError("it ended")
        view = view[count:]
    return bytes(data)
