"""What `tests.test_isolation` puts in the place of a decoder: it does what a picture's comment says."""

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

CRASH, HANG, SPIN, EAT, QUIT = b"CRASH-NOW", b"HANG-NOW", b"SPIN-NOW", b"EAT-NOW", b"QUIT-NOW"
FINE = b"FINE-NOW"  # for a successor that does not have to begin TensorFlow


def decode(data: bytes, options: Mapping[str, Any]) -> bytes:
    """Decodes, unless the bytes say otherwise."""
    if CRASH in data:
        os.kill(os.getpid(), signal.SIGSEGV)
    if HANG in data:
        time.sleep(600)
    while SPIN in data:
        pass
    if EAT in data:
        return bytes(1 << 40)
    if QUIT in data:
        os._exit(3)
    if FINE in data:
        return data
    from recordmill.pipeline.build.images.isolated_decoder import (
        decode as really,  # TensorFlow, which who reads the names does not need
    )

    return really(data, options)
