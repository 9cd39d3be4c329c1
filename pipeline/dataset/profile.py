"""The profile of rows: by feature, the numbers of rows and missing values, and the distribution of values.

Built shards count it (`pipeline.build.worker.shard_report`); a version keeps it by split in `profile/features.json`.
All figures are whole numbers, which add up exactly in any order, and do not depend on the analysis: numbers count as in
the source, texts by their length in ids.

>>> profile = {"age": FeatureProfile(rows=3, missing=1, histogram=Histogram.of(np.array([31, 40], np.float32)))}
>>> add_up([profile, profile])["age"].missing
2
>>> describe_lengths(measure_lengths(np.array([3, 0, 5])), max_length=16)
'mean 2.7 ids, longest 5; padding to 16 wastes 83.3%, padding to the longest of 32 rows wastes 46.7%'
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NotRequired, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.paths import ADVICE, Location, read_checked, read_inner
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count, parse_json, read_as

FILE = "profile/features.json"
MOST_BYTES = 256 << 20  # 256 MiB: 1,000 numbers in 10 splits need about 100 MiB
MOST_VALUES = 1 << 10  # distinct values of a histogram: an error of 0.2 % with more values in one octave
MOST_NAMES = 1 << 10  # distinct ids counted
MOST_ROWS = 1 << 50  # of one value: the sum fits int64
COUNTS = ("rows", "missing", "tokens", "unknown")  # fields that add up
LOST = range(32)  # bits that a histogram may cut off
Value = TypeVar("Value")


@dataclass(frozen=True)
class FeatureProfile:
    """The counts of a feature in some rows."""

    rows: int = 0
    missing: int = 0  # rows without a value: NaN, an empty string, or an empty list
    histogram: Histogram | None = None  # the values of a number, or the lengths of a text in ids; None for other kinds
    ids: Mapping[int, int] | None = None  # the counts of a category's ids; None for other kinds, and beyond 1,024 ids
    tokens: int = 0  # the number of ids of a text or category
    unknown: int = 0  # the number of ids of unknown names or words
    appearance: Mapping[str, Histogram] = field(default_factory=dict)
    """The measures of a sample of images, by name (`pipeline.build.images.perceptual_hash`); empty for other kinds."""

    def to_json(self) -> dict[str, Any]:
        """Returns the kind's counts as JSON."""
        json: dict[str, Any] = {"rows": self.rows, "missing": self.missing}
        if self.histogram is not None:
            json["histogram"] = _histogram_json(self.histogram)
        if self.ids is not None:
            json["ids"] = {str(id_): self.ids[id_] for id_ in sorted(self.ids)}
        if self.tokens:
            json |= {"tokens": self.tokens, "unknown": self.unknown}
        if self.appearance:
            json["appearance"] = {name: _histogram_json(self.appearance[name]) for name in sorted(self.appearance)}
        return json

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> "FeatureProfile":
        """Parses the result of `to_json`. Raises: DatasetError: it is invalid."""
        counts = {name: json[name] for name in _Counts.__annotations__ if name in json}
        read_as(counts, _Counts, "a profile")
        histogram, ids = json.get("histogram"), json.get("ids")
        if ids is not None:
            ids = read_as(ids, dict[str, Count], "a profile's ids")
            if len(ids) > MOST_NAMES or not all(map(str.isdecimal, ids)):
                raise DatasetError("a profile has invalid ids")
            ids = {int(id_): count for id_, count in ids.items()}
        appearance = {name: _read_histogram(each) for name, each in _items(json.get("appearance", {}))}
        histogram = None if histogram is None else _read_histogram(histogram)
        return cls(**counts, histogram=histogram, ids=ids, appearance=appearance)


class _Counts(TypedDict):
    rows: Count
    missing: Count
    tokens: NotRequired[Count]
    unknown: NotRequired[Count]


def _histogram_json(histogram: Histogram) -> dict[str, Any]:
    return {"lost": histogram.lost, "keys": histogram.keys.tolist(), "counts": histogram.counts.tolist()}


def _read_histogram(json: Any) -> Histogram:
    try:
        lost, keys, counts = int(json["lost"]), *(np.array(json[name], np.int64) for name in ("keys", "counts"))
        is_flat = keys.ndim == 1 and keys.shape == counts.shape and len(keys) <= MOST_VALUES
        is_counted = bool((counts > 0).all() and (counts < MOST_ROWS).all())
        if is_flat and is_counted and lost in LOST and not (np.abs(keys) >= 1 << 31).any():
            return Histogram(lost, keys, counts)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    raise DatasetError("a profile has an invalid histogram")


Profile = Mapping[str, FeatureProfile]  # by feature
Profiles = Mapping[str, Profile]  # by split


def gathered(several: Iterable[Mapping[str, Value]]) -> dict[str, list[Value]]:
    """Gathers the values of each name."""
    values = defaultdict[str, list[Value]](list)
    for each in several:
        for name, value in each.items():
            values[name].append(value)
    return values


def add_up(profiles: Iterable[Profile]) -> dict[str, FeatureProfile]:
    """Adds up profiles with the same features."""
    return {name: _sum(features) for name, features in gathered(profiles).items()}


def _sum(features: list[FeatureProfile]) -> FeatureProfile:
    if len(features) == 1:
        return features[0]
    total: dict[str, Any] = {name: sum(getattr(each, name) for each in features) for name in COUNTS}
    histograms = [each.histogram for each in features if each.histogram is not None]
    counted, ids = [each.ids for each in features if each.ids is not None], Counter[int]()
    are_all_counted = len(counted) == len(features)  # otherwise a part has too many
    for each_ids in counted if are_all_counted else ():
        ids.update(each_ids)
    measures = gathered(each.appearance for each in features).items()
    return FeatureProfile(
        **total,
        histogram=Histogram.merged(histograms, MOST_VALUES) if histograms else None,
        ids=dict(ids) if are_all_counted and len(ids) <= MOST_NAMES else None,
        appearance={name: Histogram.merged(several, MOST_VALUES) for name, several in measures},
    )


def profile_to_json(profile: Profile) -> dict[str, Any]:
    """Returns a profile as JSON, the features by name."""
    return {name: profile[name].to_json() for name in sorted(profile)}


def profile_of_json(profile: Mapping[str, Any]) -> dict[str, FeatureProfile]:
    """Parses the result of `profile_to_json`. Raises: DatasetError: it is invalid."""
    return {name: FeatureProfile.from_json(feature) for name, feature in _items(profile)}


def _items(json: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(json, Mapping) or not all(isinstance(value, Mapping) for value in json.values()):
        raise DatasetError("a profile is not an object of objects")
    return json.items()


def to_text(profiles: Profiles) -> str:
    """Returns the text of `profile/features.json`, which is deterministic."""
    splits = {split: profile_to_json(profile) for split, profile in sorted(profiles.items())}
    return json.dumps(splits, separators=(",", ":")) + "\n"


def profiles_of(data: bytes) -> dict[str, dict[str, FeatureProfile]]:
    """Parses the result of `to_text`. Raises: DatasetError: it is invalid."""
    return {split: profile_of_json(profile) for split, profile in _items(parse_json(data))}


def read_profiles(folder: Location, sha256: str | None = None) -> dict[str, dict[str, FeatureProfile]] | None:
    """Reads a version's profiles, or None; with `sha256` the file must exist and match. Raises: DatasetError."""
    if sha256 is None and not (folder / FILE).is_file():
        return None
    data = read_inner(folder, FILE, MOST_BYTES) if sha256 is None else read_checked(folder, FILE, sha256, MOST_BYTES)
    try:
        return profiles_of(data)
    except DatasetError as error:
        raise DatasetError(f"{folder / FILE} is broken ({error}): {ADVICE}") from None


LENGTHS_BATCH = 32  # rows of a usual batch, padded to its longest row
Lengths = dict[str, int]
"""`rows`, their `ids`, the `longest` row's; `in_batches`: with padding in batches of 32 rows; maybe `packed_rows`."""


def measure_lengths(lengths: npt.NDArray[np.int64]) -> Lengths:
    """Measures a shard's texts by their numbers of ids in order, int64 of shape [rows]."""
    starts = range(0, len(lengths), LENGTHS_BATCH)
    batches = [lengths[start : start + LENGTHS_BATCH] for start in starts]
    padded, longest = sum(len(batch) * int(batch.max()) for batch in batches), int(lengths.max(initial=0))
    return {"rows": len(lengths), "ids": int(lengths.sum()), "longest": longest, "in_batches": padded}


def add_up_lengths(measured: Sequence[Lengths]) -> Lengths:
    """Adds up the lengths of at least one shard."""
    return {name: (max if name == "longest" else sum)(shard[name] for shard in measured) for name in measured[0]}


def describe_lengths(lengths: Lengths, *, max_length: int | None, packed: int | None = None) -> str:
    """Describes the lengths of texts, and the share of padding for each way to batch them."""
    if not lengths["ids"]:
        return "no ids"
    slots = {f"padding to the longest of {LENGTHS_BATCH} rows": lengths["in_batches"]}
    if max_length:
        slots = {f"padding to {max_length:,}": lengths["rows"] * max_length} | slots
    if packed and "packed_rows" in lengths:
        slots["packing"] = lengths["packed_rows"] * packed
    wastes = [f"{way} wastes {1 - lengths['ids'] / number:.1%}" for way, number in slots.items() if number]
    mean = lengths["ids"] / (lengths["rows"] or 1)
    return f"mean {mean:.1f} ids, longest {lengths['longest']:,}; {', '.join(wastes)}"


PIXEL_SUMS = ("images", "pixels", "total", "squares")
"""The sums of an image's channel over rows; of deep images further channels have the high halves of squares."""


def pixel_moments(sums: Sequence[Mapping[str, int]], channels: int) -> dict[str, Any]:
    """Returns `mean` and `variance` of `PIXEL_SUMS` by channel, 0 and 1 without images, and the number of `images`."""
    if not any(each["pixels"] for each in sums):
        return {"mean": [0.0] * channels, "variance": [1.0] * channels, "images": 0}
    high = [each["squares"] << 32 for each in sums[channels:]] or [0] * channels
    both = zip(sums[:channels], high, strict=True)
    moments = [mean_and_variance(each["pixels"], each["total"], each["squares"] + more) for each, more in both]
    means, variances = map(list, zip(*moments, strict=True))
    return {"mean": means, "variance": variances, "images": sums[0]["images"]}


def mean_and_variance(count: int, total: Fraction | int, squares: Fraction | int) -> tuple[float, float]:
    """Returns the mean and the population variance of a sum and a sum of squares, each rounded once."""
    mean = Fraction(total) / count
    return float(mean), float(Fraction(squares) / count - mean * mean)
