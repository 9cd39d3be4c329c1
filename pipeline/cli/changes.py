"""The changes since the version that was live before, in a few lines at the end of a build."""

from collections.abc import Iterator

from rich.filesize import decimal

from recordmill.pipeline.build.preparation import Published
from recordmill.pipeline.compare.diff import diff
from recordmill.pipeline.compare.rows import bytes_to_read
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.reader.dataset import open_dataset
from recordmill.pipeline.versions.stores.open_store import is_local

MOST_BYTES = 256 << 20  # 256 MiB: of records of 2 kB that is half a second of CPU
MOST_REMOTE_BYTES = 16 << 20  # 16 MiB, which are fetched


def change_lines(output: str, published: Published) -> Iterator[str]:
    """Gives the lines; none for a first version, or where the version was live already.

    Shards that both versions have are not read. Rows are compared only where the others are few bytes.
    """
    before, version = published.before, published.manifest.version
    if before is None or before == version:
        return
    try:
        old, new = open_dataset(output, before), open_dataset(output, version)
        size = bytes_to_read(old, new)
        with_rows = size <= (MOST_BYTES if is_local(output) else MOST_REMOTE_BYTES)
        lines = [*diff(old, new, rows=with_rows).short_lines()]
    except (UserError, OSError) as error:
        lines, with_rows = [f"not compared: {error}"], True
    yield f"since {before}:"
    yield from (f"  {line}" for line in lines or ["  nothing differs"])
    if not with_rows:
        yield f"  rows: {decimal(size)} of shards differ; `recordmill diff {output} {before} {version}` compares them"
