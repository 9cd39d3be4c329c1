"""The folders that an attempt begins with, and the names of its steps, under which their reports and progress lie."""

FOLDERS = ("scratch", "progress", "version")
ANALYSIS = "analysis"
"""The step between reading chunks and building shards: what was learned of the rows, and the graph made of it."""
LOOK_REPORTS = "look/reports"
"""The folder of the reports of chunks that a look read and the next job reads again, on runners that shuffle rows."""


def chunk_step(index: int) -> str:
    """Reading one chunk."""
    return f"chunk-{index:06d}"


def shard_step(group: int) -> str:
    """Building one shard."""
    return f"shard-{group:06d}"
