"""The names of a build's steps, under which their reports and progress lie."""


def chunk_step(index: int) -> str:
    """Reading one chunk."""
    return f"chunk-{index:06d}"


def shard_step(group: int) -> str:
    """Building one shard."""
    return f"shard-{group:06d}"
