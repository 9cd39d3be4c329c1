"""Chooses the number of a local build's worker processes: most of a row's work outside TensorFlow holds Python's lock.

With 2, 8 and 16 cores one process and its threads build 435, 660 and 870 photos a second. No byte of a version
depends on the number.

>>> processes_for(seconds=3600, shards=512, cores=16, free=64 << 30)
8
"""

from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.parallel import cores, free_bytes
from recordmill.pipeline.spec.model import Spec

CORES = 2  # of a process
BYTES = 2 << 30  # 2 GiB of a process: 1 of TensorFlow and Beam, and its batches
SECONDS = 10.0  # of work that a process is worth: it takes six to start
IMAGE_SECONDS, IMAGE_BYTE_SECONDS = 0.5e-3, 20e-9
ROW_SECONDS, BYTE_SECONDS, TOKENIZED_BYTE_SECONDS = 10e-6, 80e-9, 300e-9


def processes_for(seconds: float, shards: int, cores: int, free: int) -> int:
    """Returns the number of processes, 1 or more.

    `seconds` are one core's for all the work, `shards` the most that can be built at a time, `free` bytes of memory:
    the driver takes as much as a process.
    """
    return max(1, min(cores // CORES, free // BYTES - 1, int(seconds / SECONDS), shards))


def seconds_of(spec: Spec, rows: int, bytes_: int) -> float:
    """Estimates the CPU seconds of a build by its rows, their bytes and kinds."""
    features = spec.features.values()
    if any(each.is_image for each in features):
        return rows * IMAGE_SECONDS + bytes_ * IMAGE_BYTE_SECONDS
    of_byte = TOKENIZED_BYTE_SECONDS if any(each.in_library for each in features) else BYTE_SECONDS
    return rows * ROW_SECONDS + bytes_ * of_byte


def choose_processes(seconds: float, shards: int, options: RunOptions) -> tuple[int, list[str]]:
    """Returns the number of processes, as given by the options or chosen, and a note on a choice of several."""
    if options.processes is not None or options.runner != "local":
        return options.processes or 1, []
    free = free_bytes()
    number = processes_for(seconds, shards, cores(), free)
    of = f"{cores()} cores, {free >> 30:,} GiB of memory and about {seconds / 60:,.0f} minutes of one core's work"
    return number, [f"{number} worker processes for {of}: --processes gives another number"] if number > 1 else []
