#!/usr/bin/env python3
"""A worker for measurements: Recordmill's own, which sleeps for each shard that it builds, and on one machine longer.

    slow_worker.py --id=ID --provision_endpoint=HOST:PORT ...

A TaskManager starts it (`--flink-workers`). Beside it is `slow_worker.json`: the `seconds` that a shard takes, and by
the process id of a TaskManager, `slower`, how many times as long its shards take. Sleeping needs no cores, so that a
machine of two cores measures a cluster of any size; the slow machine starts its worker as fast as the others.
"""

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from recordmill.pipeline.build.beam import worker_boot
from recordmill.pipeline.build.worker.build_shard import ShardBuilder
from recordmill.pipeline.build.worker.packing import Packed

TIMES = "slow_worker.json"


def main() -> None:
    """Makes the worker's shards slower, and starts it."""
    times = json.loads(Path(sys.argv[0]).with_name(TIMES).read_text())
    seconds = times["seconds"] * times["slower"].get(str(os.getppid()), 1)
    build = ShardBuilder.build

    def slowly(self: ShardBuilder, group: int, packed: Iterable[Packed]) -> dict[str, Any]:
        time.sleep(seconds)
        return build(self, group, packed)

    mock.patch.object(ShardBuilder, "build", slowly).start()
    worker_boot.main(sys.argv[1:])


if __name__ == "__main__":
    main()
