"""The names of a version's files, and the paths of a shard's.

Shards are named as TensorFlow Datasets names them; an index' name differs, so that `emoji-train.tfrecord-*` matches
shards alone. Versions in an object store share shards: `Shard.version` names the one whose folder holds file and index.
A manifest may come from anywhere, so such a shard must be below the folder `versions`, after every link is followed.

>>> shard_names("emoji", "train", 0, 12)
('emoji-train.tfrecord-00000-of-00012', 'emoji-train.index-00000-of-00012')
>>> span_file("2026-11-20", REPORT)
'spans/2026-11-20/report.json'
>>> shard_paths("s3://bucket/out/versions/20261121T120000Z-77d0a4b1", shard)  # doctest: +SKIP
ShardPaths(root='s3://bucket/out/versions', file='20261120T120000Z-4f1c9a2e/emoji-train.tfrecord-00000-of-00002', …)
"""

from typing import NamedTuple

from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Shard
from recordmill.pipeline.dataset.paths import check_place
from recordmill.pipeline.errors import DatasetError

SPANS = "spans"  # the folder of each span's own files
REPORT, REJECTED = "report.json", "rejected.jsonl"
"""The files of a span, in its folder: its report, and its rejected rows if there are any."""


def shard_names(dataset: str, split: str, shard: int, shards: int) -> tuple[str, str]:
    """The names of the file of a shard, counted from 0, and of its index of record offsets."""
    number = f"{shard:05d}-of-{shards:05d}"
    return f"{dataset}-{split}.tfrecord-{number}", f"{dataset}-{split}.index-{number}"


def vocabulary_name(feature: str) -> str:
    """The file name of a feature's vocabulary, in `transform_fn/assets`."""
    return f"{feature}.vocabulary.txt"


def span_file(span: str, name: str) -> str:
    """The path of a span's file in its version."""
    return f"{SPANS}/{span}/{name}"


def span_of_file(path: str) -> str | None:
    """Returns the span of a file of its version; None for a file of no span."""
    folder, _, rest = path.partition("/")
    return rest.partition("/")[0] if folder == SPANS else None


class ShardPaths(NamedTuple):
    """A folder, which no link may leave, and the files of a shard by their paths in it."""

    root: str
    file: str
    index_file: str

    @property
    def full(self) -> tuple[str, str]:
        """The paths or URLs of the file and the index."""
        return f"{self.root}/{self.file}", f"{self.root}/{self.index_file}"


def shard_paths(folder: str, shard: Shard) -> ShardPaths:
    """Locates a shard that the manifest in a folder, local or a URL, lists.

    Raises:
        DatasetError: the shard is in another version, and the folder was copied away from the others; or a link
            leads out.
    """
    paths = ShardPaths(folder, *inner_paths(shard))
    if shard.version is not None:
        paths = paths._replace(root=folder.rpartition("/")[0])
        if paths.root.rpartition("/")[2] != VERSIONS_FOLDER:
            raise DatasetError(
                f"{folder} is no whole version: {shard.file} lies in the version {shard.version}. Copy it again after "
                "`recordmill versions materialize`, which brings all files of a version into its own folder"
            )
    for path in paths[1:]:
        check_place(paths.root, path)
    return paths


def inner_sizes(shard: Shard) -> dict[str, int]:
    """Returns the bytes of a shard's file and of its index, by their `inner_paths`."""
    return dict(zip(inner_paths(shard), (shard.bytes, index_bytes(shard.records)), strict=True))


def index_bytes(records: int) -> int:
    """Returns the bytes of an index: an offset of 8 bytes a record, and the file's size."""
    return 8 * (records + 1)


def inner_paths(shard: Shard) -> tuple[str, str]:
    """Returns the paths of a shard's file and index in its version's folder or, of another version's, in `versions`."""
    if shard.version is None:
        return shard.file, shard.index
    return f"{shard.version}/{shard.file}", f"{shard.version}/{shard.index}"
