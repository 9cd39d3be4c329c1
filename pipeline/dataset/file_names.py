"""The names of a version's files, and the paths of a shard's.

Shards have TensorFlow Datasets' names; an index has another, so `emoji-train.tfrecord-*` matches only shards. Versions
in an object store share shards: `Shard.version` names the version with file and index in its folder. Manifests are
untrusted: such a shard must be below the folder `versions`, after following links.

>>> shard_file("emoji", "train", "tfrecord", 0, 12)
'emoji-train.tfrecord-00000-of-00012'
>>> span_file("2026-11-20", REPORT)
'spans/2026-11-20/report.json'
"""

from dataclasses import replace
from typing import NamedTuple

from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Shard
from recordmill.pipeline.dataset.paths import check_place, real_place
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut

SPANS = "spans"  # the folder of spans' files
REPORT, REJECTED = "report.json", "rejected.jsonl"
"""The files in a span's folder: its report, and its rejected rows if any."""


def shard_file(dataset: str, split: str, what: str, shard: int, shards: int) -> str:
    """Names a file of shard number `shard`, from 0: its `tfrecord` or `index`, rows of 9 ids, `pack-9`, or its `kept`.

    The last one has the records of a split in an adopted file.
    """
    return f"{dataset}-{split}.{what}-{shard:05d}-of-{shards:05d}"


def renamed(shard: Shard, dataset: str, split: str, number: int, shards: int) -> Shard:
    """Names the files of a shard for the own folder of a version that keeps it."""
    file, index, *packs = (
        shard_file(dataset, split, what, number, shards)
        for what in ("tfrecord", "index", *(f"pack-{each.length}" for each in shard.packs))
    )
    indexes = tuple(replace(each, file=name) for each, name in zip(shard.packs, packs, strict=True))
    return replace(shard, file=file, index=index, packs=indexes, version=None)


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


class Allowed(str):
    """An allowed root of adopted files, links resolved: `adopted_files.allow` makes it, and no manifest can."""

    __slots__ = ()


class Place(NamedTuple):
    """A file in a folder that links may not leave."""

    root: str
    file: str

    @property
    def full(self) -> str:
        """The file's path or URL."""
        return f"{self.root}/{self.file}"


class ShardPaths(NamedTuple):
    """The places of a shard's files."""

    file: Place
    index_file: Place
    kept_file: Place | None
    packs: tuple[Place, ...] = ()


def shard_paths(folder: str, shard: Shard) -> ShardPaths:
    """Locates a shard listed in the manifest of a folder or URL.

    Raises: DatasetError: the shard is in another version, and the folder was copied without it; a link leads out; or
    the shard is an adopted file in a place that the caller does not allow.
    """
    own, (file, index, *packs) = folder, inner_paths(shard)
    if shard.version is not None:
        own = folder.rpartition("/")[0]
        if own.rpartition("/")[2] != VERSIONS_FOLDER:
            again = f"Copy the whole folder {VERSIONS_FOLDER}, or `recordmill export` the version"
            raise DatasetError(f"{folder} is incomplete: {shard.file} is in the version {shard.version}. {again}")
    root = own if shard.root is None else shard.root
    if shard.root is not None and not isinstance(root, Allowed):
        remedy = "allow them by `open_dataset(…, files=FOLDER)`, or adopt them again on this machine"
        outside = f"{folder} names files in {cut(repr(shard.root))}, outside its dataset"
        raise DatasetError(f"{outside}: if you trust it, {remedy}")
    kept, indexes = None if shard.kept is None else Place(own, shard.kept), tuple(Place(own, path) for path in packs)
    places = ShardPaths(Place(root, file), Place(own, index), kept, indexes)
    for place in (place for place in (*places[:3], *indexes) if place is not None):
        check_place(*place)
    if shard.root is not None and "://" not in root:
        real_place(root, file)
    return places


def output_sizes(shard: Shard, version: str) -> dict[str, int]:
    """Returns the `sizes` of a version's shard by name in the output; empty for an adopted file."""
    folder, sizes = f"{VERSIONS_FOLDER}/{shard.version or version}", shard.sizes if shard.root is None else {}
    return {f"{folder}/{path}": size for path, size in sizes.items()}


def shown_paths(shard: Shard) -> tuple[str, str]:
    """Names a shard's file and index in messages: an adopted file by its whole path."""
    file, index, *_ = inner_paths(shard)
    return file if shard.root is None else f"{shard.root}/{file}", index


def inner_paths(shard: Shard) -> tuple[str, ...]:
    """Returns `Shard.paths` in its version's folder; for another version's, in `versions`."""
    return shard.paths if shard.version is None else tuple(f"{shard.version}/{path}" for path in shard.paths)
