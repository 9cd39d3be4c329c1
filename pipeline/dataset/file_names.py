"""The names of a version's files, and the paths of a shard's.

Shards have TensorFlow Datasets' names; an index has another, so `emoji-train.tfrecord-*` matches only shards. Versions
in an object store share shards: `Shard.version` names the version with file and index in its folder. Manifests are
untrusted: such a shard must be below the folder `versions`, after following links.

>>> shard_names("emoji", "train", 0, 12)
('emoji-train.tfrecord-00000-of-00012', 'emoji-train.index-00000-of-00012')
>>> span_file("2026-11-20", REPORT)
'spans/2026-11-20/report.json'
"""

from typing import NamedTuple

from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Shard
from recordmill.pipeline.dataset.paths import check_place
from recordmill.pipeline.errors import DatasetError

SPANS = "spans"  # the folder of spans' files
REPORT, REJECTED = "report.json", "rejected.jsonl"
"""The files in a span's folder: its report, and its rejected rows if any."""


def shard_names(dataset: str, split: str, shard: int, shards: int) -> tuple[str, str]:
    """Names the file and the index of shard number `shard`, from 0."""
    number = f"{shard:05d}-of-{shards:05d}"
    return f"{dataset}-{split}.tfrecord-{number}", f"{dataset}-{split}.index-{number}"


def vocabulary_name(feature: str) -> str:
    """Names the file of a feature's vocabulary in `transform_fn/assets`."""
    return f"{feature}.vocabulary.txt"


def span_file(span: str, name: str) -> str:
    """Returns the path of a span's file in its version."""
    return f"{SPANS}/{span}/{name}"


def span_of_file(path: str) -> str | None:
    """Returns the span of a version's file; None for other files."""
    folder, _, rest = path.partition("/")
    return rest.partition("/")[0] if folder == SPANS else None


class ShardPaths(NamedTuple):
    """A folder, which links may not leave, and the paths of a shard's files in it."""

    root: str
    file: str
    index_file: str

    @property
    def full(self) -> tuple[str, str]:
        """The paths or URLs of the file and the index."""
        return f"{self.root}/{self.file}", f"{self.root}/{self.index_file}"


def shard_paths(folder: str, shard: Shard) -> ShardPaths:
    """Locates a shard listed in the manifest of a folder or URL.

    Raises:
        DatasetError: the shard is in another version, and the folder was copied without it; or a link leads out.
    """
    paths = ShardPaths(folder, *inner_paths(shard))
    if shard.version is not None:
        paths = paths._replace(root=folder.rpartition("/")[0])
        if paths.root.rpartition("/")[2] != VERSIONS_FOLDER:
            raise DatasetError(
                f"{folder} is incomplete: {shard.file} is in the version {shard.version}. Copy it again after "
                "`recordmill versions materialize`, which copies all files of a version into its folder"
            )
    for path in paths[1:]:
        check_place(paths.root, path)
    return paths


def inner_sizes(shard: Shard) -> dict[str, int]:
    """Returns the bytes of a shard's file and its index, by `inner_paths`."""
    return dict(zip(inner_paths(shard), (shard.bytes, index_bytes(shard.records)), strict=True))


def index_bytes(records: int) -> int:
    """Returns the bytes of an index: 8 per record offset, and 8 for the file's size."""
    return 8 * (records + 1)


def inner_paths(shard: Shard) -> tuple[str, str]:
    """Returns the paths of a shard's file and index in its version's folder; for another version's, in `versions`."""
    if shard.version is None:
        return shard.file, shard.index
    return f"{shard.version}/{shard.file}", f"{shard.version}/{shard.index}"
