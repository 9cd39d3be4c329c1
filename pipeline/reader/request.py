"""What an input is to hold: a split's files, checked, and the features to read from them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import did_you_mean
from pipeline.manifest import DatasetError, Json, Manifest, Shard, Split


@dataclass(frozen=True)
class Request:
    """One split, ready to be read. All files were there, of the size that the manifest gives, when this was made."""

    files: tuple[str, ...]
    """The shards that hold records, as absolute paths, in the order of the records."""
    records: int
    bytes: int
    """Of all files together."""
    features: dict[str, Json]
    """The descriptions of the features to read, the label among them."""
    label: str | None
    with_key: bool
    """Whether the rows' keys are read too."""
    batch_size: int


def make_request(
    folder: Path,
    manifest: Manifest,
    split: str,
    batch_size: int,
    features: Collection[str] | None,
    with_key: bool,
) -> Request:
    """Checks the arguments of an input, and that every shard is there.

    Raises:
        DatasetError: a wrong argument, or a shard that is missing or of another size than the manifest's.
    """
    check_batch_size(batch_size)
    chosen = find_split(manifest, split)
    descriptions = _chosen_features(manifest, features)
    for shard in chosen.shards:
        _check_shard(folder, shard)
    return Request(
        files=tuple(str(folder / shard.file) for shard in chosen.shards if shard.records),
        records=chosen.records,
        bytes=chosen.bytes,
        features=descriptions,
        label=manifest.label,
        with_key=with_key,
        batch_size=batch_size,
    )


def find_split(manifest: Manifest, split: str) -> Split:
    """Gives a split by its name. Raises: DatasetError if there is none of that name."""
    if split not in manifest.splits:
        raise _unknown("split", split, manifest.splits, manifest)
    return manifest.splits[split]


def find_feature(manifest: Manifest, feature: str) -> Json:
    """Gives a feature's description by its name. Raises: DatasetError if there is none of that name."""
    if feature not in manifest.features:
        raise _unknown("feature", feature, manifest.features, manifest)
    return manifest.features[feature]


def check_batch_size(batch_size: int) -> None:
    """Refuses less than one record. Raises: DatasetError."""
    if batch_size < 1:
        raise DatasetError(f"batch_size is the number of records in a batch, at least 1, got {batch_size}")


def _unknown(what: str, name: str, known: Iterable[str], manifest: Manifest) -> DatasetError:
    near = did_you_mean(name, known)
    return DatasetError(f"{manifest.name} has no {what} '{name}'{near}; there are: {', '.join(known)}")


def _chosen_features(manifest: Manifest, chosen: Collection[str] | None) -> dict[str, Json]:
    if chosen is None:
        return dict(manifest.features)
    if isinstance(chosen, str) or not chosen:
        raise DatasetError(f"features is a list of at least one name, got {chosen!r}")
    if manifest.label in chosen:
        raise DatasetError(f"'{manifest.label}' is the label, which is always read: leave it out of features")
    names = [*chosen, *([manifest.label] if manifest.label else [])]
    return {name: find_feature(manifest, name) for name in names}


def _check_shard(folder: Path, shard: Shard) -> None:
    # A TFRecord file that was cut between two records reads as a good file with fewer of them.
    path = folder / shard.file
    advice = "copy the version again, or build again"
    try:
        found = path.stat().st_size
    except FileNotFoundError:
        raise DatasetError(f"{path} is missing (expected {shard.bytes:,} bytes): {advice}") from None
    if found != shard.bytes:
        raise DatasetError(f"{path} has {found:,} bytes, expected {shard.bytes:,}: {advice}")
