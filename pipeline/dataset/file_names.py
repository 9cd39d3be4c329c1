"""The names of a version's files, the paths of a shard's, and the adopted files that a reader may open.

Shards have TensorFlow Datasets' names; an index has another, so `emoji-train.tfrecord-*` matches only shards. Versions
in an object store share shards: `Shard.version` names the version with file and index in its folder. Manifests are
untrusted: such a shard must be below the folder `versions`, after following links.

An adopted version names somebody else's files, and may come from anybody. Allowed are places in the dataset's own
folder, those that a caller names, and those that this user adopted into this folder on this machine. A place is what
remains after every link on its way is resolved: `allow` decides it, and `paths.real_place` holds a file there.

>>> shard_file("emoji", "train", "tfrecord", 0, 12)
'emoji-train.tfrecord-00000-of-00012'
"""

import glob
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import NamedTuple

from recordmill.pipeline.dataset import paths
from recordmill.pipeline.dataset.manifest import VERSIONS_FOLDER, Location, Manifest, Shard
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut

SPANS = "spans"  # the folder of spans' files
REPORT, REJECTED = "report.json", "rejected.jsonl"
"""The files in a span's folder: its report, and its rejected rows if any."""
WILDCARD = re.compile(r"[*?\[]")
BLOCK = 16 << 10  # 16 KiB: a request to a store costs more than its bytes
HERE = "."  # the root of files in the dataset's own folder


def shard_file(dataset: str, split: str, what: str, shard: int, shards: int) -> str:
    """Names shard `shard`'s file, from 0, of `what`: `tfrecord`, `index`, `pack-9` (rows of 9 ids), or `kept`."""
    return f"{dataset}-{split}.{what}-{shard:05d}-of-{shards:05d}"


def renamed(shard: Shard, dataset: str, split: str, number: int, shards: int) -> Shard:
    """Names the files of a shard for the own folder of a version that keeps it."""
    kinds = ("tfrecord", "index", *(f"pack-{each.length}" for each in shard.packs))
    file, index, *packs = (shard_file(dataset, split, what, number, shards) for what in kinds)
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
    """An allowed root of adopted files, links resolved: `allow` makes it, and no manifest can."""

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

    Raises: DatasetError: the shard is in another version, and the folder was copied without it; a link leads out; or it
    is an adopted file in a place that the caller does not allow.
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
        paths.check_place(*place)
    if shard.root is not None and "://" not in root:
        paths.real_place(root, file)
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


def allow(manifest: Manifest, version: Location, files: Iterable[str] = ()) -> Manifest:
    """Marks the roots of adopted files that readers of a version's folder may open: own, remembered, or in `files`."""
    if not manifest.adopted:
        return manifest
    above, _, name = str(version).rpartition("/")[0].rpartition("/")
    dataset = above if name == VERSIONS_FOLDER else str(version)  # which may have been copied without the dataset
    places = [*((place, "") for place in _remembered(dataset)), *map(_place, files)]
    real = cache(_real)

    def marked(shard: Shard) -> Shard:
        root = shard.root or ""
        if not _is_absolute(root):
            if root != HERE:
                paths.check_place(dataset, root)
            return replace(shard, root=Allowed(real(dataset if root == HERE else f"{dataset}/{root}")))
        is_allowed = "\0" not in root and any(_holds(*place, real(root), shard.file) for place in places)
        return replace(shard, root=Allowed(real(root))) if is_allowed else shard

    splits = {name: replace(split, shards=tuple(map(marked, split.shards))) for name, split in manifest.splits.items()}
    return replace(manifest, splits=splits)


def _is_absolute(root: str) -> bool:
    return os.path.isabs(root) or "://" in root


def _real(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)


def _place(given: str) -> tuple[str, str]:
    """Splits a folder, a file, a glob or a URL into its folder, links resolved, and a glob of names ("": all below)."""
    wildcard = WILDCARD.search(given)
    if os.path.isfile(given):
        return _real(os.path.dirname(given)), glob.escape(os.path.basename(given))
    if wildcard is None:
        return _real(given), ""
    folder = os.path.dirname(given[: wildcard.start()])
    return _real(folder), given[len(folder) :].lstrip("/").replace("**/", "*")


def _holds(folder: str, names: str, root: str, file: str) -> bool:
    """Whether a place holds a file below a root, both without links; URLs by their texts."""
    if names:
        return root == folder and fnmatchcase(file, names)
    whole, place = f"{root}/", f"{folder.rstrip('/')}/"
    parts = root.partition("://")[2].split("/")
    special = paths.OF_URLS & set(whole.removeprefix(place)) or paths.NO_PARTS & set(parts)
    return whole.startswith(place) and not ("://" in root and special)


def sample(read: Callable[[int, int], bytes], size: int) -> str:
    """Returns the SHA-256 of four blocks of a file, in hex, by `read(start, bytes)`; of all up to 64 KiB."""
    starts = sorted({max(0, size - BLOCK) * part // 3 for part in range(4)}) if size else []
    return hashlib.sha256(b"".join(read(start, min(BLOCK, size)) for start in starts)).hexdigest()


def check_content(path: str, size: int, expected: str | None, read: Callable[[int, int], bytes]) -> None:
    """Compares an adopted file's `sample` with that of its adoption, if known. Raises: DatasetError."""
    if expected and sample(read, size) != expected:
        raise DatasetError(f"{path} changed since it was adopted: {paths.ADOPT}")


def remember(dataset: str, roots: Iterable[str]) -> None:
    """Notes in the user's cache where files lie that this user adopted into a dataset, links resolved."""
    path, places = _note(dataset), {_real(root) for root in roots if _is_absolute(root)}
    with suppress(OSError):  # without a cache, `files=` allows them
        os.makedirs(path.parent, mode=0o700, exist_ok=True)
        paths.write_atomically(path, json.dumps(sorted({*places, *_remembered(dataset)})).encode())


def _remembered(dataset: str) -> list[str]:
    with suppress(OSError, ValueError):
        path = _note(dataset)
        if path.stat().st_uid == os.geteuid() and not path.parent.stat().st_mode & 0o022:
            roots = json.loads(path.read_bytes())
            return [root for root in roots if isinstance(root, str) and _is_absolute(root)]
    return []


def _note(dataset: str) -> Path:
    name = dataset if "://" in dataset else os.path.realpath(dataset)
    return Path(paths.user_cache(), "adopted", f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json")
