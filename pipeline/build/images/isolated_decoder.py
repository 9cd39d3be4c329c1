"""The process that decodes images for `images.isolation`: loads the decoders, forks a process for each thread.

Run as a module, with a socket's descriptor and the decoder's `module:function`. TensorFlow runs nothing before the
fork: its threads would be lost.
"""

import importlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from recordmill.pipeline.build.images.deep_files import wanted_pixels
from recordmill.pipeline.build.images.isolation import AS_IS, COMMAND, FORK, PNG, REJECT, receive, send
from recordmill.pipeline.build.images.transcode import decodable
from recordmill.transforms.images.decode_graph import libjpeg
from recordmill.transforms.images.image_header import ImageError, read_header

Decode = Callable[[bytes, Mapping[str, Any]], bytes]
SPARE_BYTES, PIXEL_BYTES = 2 << 30, 32  # 2 GiB and 32 bytes a pixel: an image's limit of address space
STATM = Path("/proc/self/statm")  # Linux; the first number is pages
DECODERS = {
    "JPEG": lambda encoded: libjpeg(encoded, 3),
    "PNG": lambda encoded: tf.io.decode_png(encoded, channels=0),
    "WebP": lambda encoded: tf.io.decode_webp(encoded, channels=0),
    "BMP": lambda encoded: tf.io.decode_bmp(encoded, channels=3),
}
"""The graph's decoders by format, at full size and with all channels."""


def decode(data: bytes, options: Mapping[str, Any]) -> bytes:
    """Decodes an image once, ignoring the graph's failures; returns the bytes of `decodable`. Raises: ImageError."""
    ready = decodable(data, options)
    try:
        DECODERS[read_header(ready).format](tf.constant(ready))
    except tf.errors.InvalidArgumentError:
        pass
    return ready


def answer(request: bytes, decoder: Decode, spare: int) -> bytes:
    """Answers a request, options and CPU seconds in a line of JSON before an image.

    `spare` is this process' initial address space in bytes.
    """
    head, _, data = request.partition(b"\n")
    options, seconds = json.loads(head)
    header, planes = read_header(data), max(1, wanted_pixels(options).planes)
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    if STATM.exists():
        space = spare + SPARE_BYTES + PIXEL_BYTES * header.width * header.height * planes
        resource.setrlimit(resource.RLIMIT_AS, (space, resource.RLIM_INFINITY))
    try:
        ready = decoder(data, options)
    except ImageError as error:
        return REJECT + f"{error.reason}\0{error.message}".encode()
    except (MemoryError, tf.errors.ResourceExhaustedError):
        return REJECT + f"undecodable_image\0the {header.format} takes too much memory to decode".encode()
    return AS_IS if ready == data else PNG + ready


def fork(control: socket.socket, channel: socket.socket, decoder: Decode) -> int:
    """Starts a process that answers a channel's requests until the other end is closed; returns its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        control.close()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        space = int(STATM.read_text().split()[0]) * resource.getpagesize() if STATM.exists() else 0
        while True:
            send(channel, answer(receive(channel), decoder, space))
    except ConnectionError:
        pass
    finally:
        os._exit(0)


def end(pid: int) -> int:
    """Ends a process; returns its exit code, a negative signal number if killed."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(descriptor: int, decoder: Decode) -> None:
    """Forks and ends processes on command, until its socket is closed; then ends them all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's
    control, forked = socket.socket(fileno=descriptor), set[int]()
    control.sendall(b"+")
    while True:
        command, sockets, _, _ = socket.recv_fds(control, COMMAND.size, 1)
        if len(command) < COMMAND.size:
            break
        (number,) = COMMAND.unpack(command)
        if number == FORK:
            with socket.socket(fileno=sockets[0]) as channel:
                result = fork(control, channel, decoder)
            forked.add(result)
        else:
            forked.discard(number)
            result = end(number)
        control.sendall(COMMAND.pack(result))
    for pid in forked:
        end(pid)


if __name__ == "__main__":
    module, _, function = sys.argv[2].partition(":")
    main(int(sys.argv[1]), getattr(importlib.import_module(module), function))
