"""The names of a build's folders, and of its steps, under which their reports and progress lie."""

FOLDERS = ("scratch", "reports", "progress", "rejects", "version", "analysis", "first", "digests")


def chunk_step(index: int) -> str:
    """Reading one chunk."""
    return f"chunk-{index:06d}"


def shard_step(group: int) -> str:
    """Building one shard."""
    return f"shard-{group:06d}"
