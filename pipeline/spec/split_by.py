"""Splits rows by a column, group, time or the label's classes, not the key's hash: `split_by: {group: patient}`."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from recordmill.pipeline.dataset.placement import SPLITS, SYNONYMS, split_bounds
from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.pipeline.sources.globs import Template
from recordmill.pipeline.sources.options import PATHS, Names, SourceOptions, is_template
from recordmill.pipeline.yaml_document import Options, one_or_list
from recordmill.transforms.base.feature import Feature, feature_named
from recordmill.transforms.texts.text_stored import MOST_LENGTH
from recordmill.transforms.values.category_spec import Category

Places = npt.NDArray[np.int64]  # the index of each row's split in the spec's `splits`, shape [rows]; -1: none
BEGINNING = datetime.min.replace(tzinfo=UTC)

Instant = Annotated[
    str, BeforeValidator(lambda value: value.isoformat() if isinstance(value, date) else value, str | date)
]
SECONDS = (1e8, 1e10)
"""Unix seconds from 1973 to 2286; smaller numbers are years, months, days (`20250131`) or Excel's days."""
HOUR = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])\d\d|\d{11,}")
"""Hours such as `2025013112`, as seconds 2030 to 2036; milliseconds such as `1736121600000`, by ISO 8601 in 1736."""
DISTANCE = 6
"""106 of 1.3 million pairs of emoji are nearer, variants of one drawing, as are 99 % of half-size copies (docs)."""
Action = Literal["keep", "drop", "same_split", "fail"]


class SplitBy(Options):
    """A rule that splits rows instead of the key's hash: exactly one of column, group, time and stratify."""

    column: str | None = Field(default=None, min_length=1)
    """The column with the split's name."""
    values: dict[str, Names] | None = None
    """With `column`: the values for each split; by default its name and usual synonyms."""
    group: str | None = Field(default=None, min_length=1)
    """A column: rows with the same value share a split, by the value's hash."""
    time: str | None = Field(default=None, min_length=1)
    """The column with the time, in ISO 8601 or as Unix seconds since 1973; without a time zone it is UTC."""
    starts: dict[str, Instant] | None = None
    """With `time`: the start of each split but one; earlier rows go to that one."""
    stratify: str | None = Field(default=None, min_length=1)
    """A feature of kind category: each class is split by the shares. The data is read once more before."""

    @model_validator(mode="after")
    def _check(self) -> "SplitBy":
        ways = [way for way in ("column", "group", "time", "stratify") if getattr(self, way) is not None]
        if len(ways) != 1:
            raise ValueError(f"needs exactly one of column, group, time and stratify, got {', '.join(ways) or 'none'}")
        for option, way in (("values", "column"), ("starts", "time")):
            if getattr(self, option) is not None and way not in ways:
                raise ValueError(f"`{option}` belongs to `{way}`")
        for value, times in Counter(value for values in (self.values or {}).values() for value in values).items():
            if times > 1:
                raise ValueError(f"the value {value!r} stands for {times} splits")
        if self.time and not self.starts:
            raise ValueError("`time` needs `starts`: when each split but one begins")
        for split, start in (self.starts or {}).items():
            if instant(start) is None:
                raise ValueError(f"`starts` of {split} should be a time in ISO 8601, got {start!r}")
        return self

    @property
    def read_column(self) -> str | None:
        """The needed column, read as a category."""
        return self.column or self.group or self.time

    def places(self, values: Sequence[str], splits: Sequence[str]) -> Places:
        """Returns the splits of rows by a column's or a time's values, shape [rows]; -1: none."""
        known = dict[str, int]()
        if self.column:
            for index, split in enumerate(splits):
                usual = (split, *(name for name in SYNONYMS.get(split, ()) if name not in splits))
                known |= dict.fromkeys((self.values or {}).get(split, usual), index)
        else:
            given = self.starts or {}  # a split without a start has no lower bound
            begins = [(instant(given[split]) if split in given else None) or BEGINNING for split in splits]
            latest = sorted(zip(begins, range(len(splits)), strict=True), reverse=True)
            for value in set(values):
                if (when := instant(value)) is not None:
                    known[value] = next((index for start, index in latest if when >= start), latest[-1][1])
        return np.array([known.get(value, -1) for value in values], np.int64)


@lru_cache(maxsize=1 << 16)
def instant(text: str) -> datetime | None:
    """Reads a time in ISO 8601 or Unix seconds; None for anything else, and for a number that may be an hour."""
    text = text.strip().removesuffix(".0")  # as pandas writes whole numbers
    if HOUR.fullmatch(text):
        return None
    try:
        if SECONDS[0] <= abs(float(text)) < SECONDS[1]:
            return datetime.fromtimestamp(float(text), UTC)
    except ValueError:
        pass
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


class Duplicates(Options):
    """The treatment of rows with the same content."""

    action: Action = "keep"
    """`keep`: only counted. `drop`: the first stays. `same_split`: all go to the first one's split. `fail`: the build
    stops and publishes nothing. All but `keep` read the data once more before."""
    near: bool = False
    """Whether similar images count as equal: scaled, re-encoded, slightly brighter or cropped."""
    distance: int = Field(default=DISTANCE, ge=0, le=8)
    """With `near`: how many of the 64 bits of two images' hashes may differ."""

    @model_validator(mode="after")
    def _check(self) -> "Duplicates":
        if self.distance != DISTANCE and not self.near:
            raise ValueError("`distance` belongs to `near: true`")
        return self


def check_splits(
    splits: Mapping[str, float],
    shards: int | Mapping[str, int] | None,
    sources: Sequence[SourceOptions],
    split_by: SplitBy | None,
) -> None:
    """Checks the shares, and that other options name existing splits. Raises: WrongValueError."""
    if not splits.get("train"):
        got = ", ".join(f"{name}: {share:g}" for name, share in splits.items())
        meant = [f"; does `{name}` mean `{SPLITS[name]}`?" for name in splits if SPLITS.get(name, name) not in splits]
        raise WrongValueError(f"needs a `train` with a share above 0, got {{{got}}}{''.join(meant)}", "splits")
    try:
        split_bounds(splits)
    except ValueError as error:
        raise WrongValueError(str(error), "splits") from None
    named: list[tuple[str, tuple[str, ...]]]
    named = [(split, ("shards", split)) for split in (shards if isinstance(shards, Mapping) else ())]
    named += [(source.split, ("source",)) for source in sources if source.split is not None]
    if split_by:
        named += [(split, ("split_by",)) for split in (*(split_by.values or ()), *(split_by.starts or ()))]
    for split, path in named:
        if split not in splits:
            usual = SPLITS.get(split)
            near = f"; did you mean `{usual}`?" if usual in splits else did_you_mean(split, splits)
            raise WrongValueError(f"unknown split '{split}', known: {', '.join(splits)}{near}", *path)


def check_split_by(split_by: SplitBy | None, splits: Mapping[str, float], features: Mapping[str, Feature]) -> None:
    """Checks the splits' times and the stratifying feature. Raises: WrongValueError."""
    if split_by is None:
        return
    starts, by = split_by.starts, split_by.stratify
    if starts is not None and len(starts) != len(splits) - 1:
        raise WrongValueError("`starts` needs a time for each split but one, which gets the earlier rows", "split_by")
    if by is None:
        return
    feature = features.get(by)
    if not isinstance(feature, Category):
        near = "" if feature else did_you_mean(by, features)
        raise WrongValueError(f"'{by}' is not a feature of kind category{near}", "split_by", "stratify")
    if feature.cross or feature.optional:
        why = "a cross" if feature.cross else "optional"
        raise WrongValueError(f"'{by}' is {why}: every row needs one class", "split_by", "stratify")


def check_duplicates(
    duplicates: Duplicates, split_by: SplitBy | None, sources: Sequence[SourceOptions], features: Mapping[str, Feature]
) -> None:
    """Checks that one rule splits each row, and that `near` has images to compare. Raises: WrongValueError."""
    ways = [way for way in ("column", "time") if split_by and getattr(split_by, way)]
    deciders = [f"`split_by: {{{way}: …}}`" for way in ways]
    deciders += ["a source's `split`" for source in sources if source.split is not None]
    if duplicates.action == "same_split" and deciders:
        message = f"`same_split` contradicts {deciders[0]}, which decides each row's split: choose `drop` or `keep`"
        raise WrongValueError(message, "duplicates")
    if duplicates.near and not any(feature.kind == "image" for feature in features.values()):
        raise WrongValueError("`near` compares images: add a feature of kind image", "duplicates", "near")


def check_spans(sources: Sequence[SourceOptions], split_by: SplitBy | None, duplicates: Duplicates) -> None:
    """Checks placeholders in paths, and that no option compares rows of different spans. Raises: WrongValueError."""
    for source in sources:
        names = Template(source.path).names
        if fault := Template(source.path).fault():
            raise WrongValueError(f"{source.path}: {fault}", "source")
        for option in PATHS:
            unknown = sorted(Template(getattr(source, option, None) or "").names - names)
            if unknown:
                raise WrongValueError(f"`{option}` holds {{{unknown[0]}}}, which `path` lacks", "source")
        if names and source.format == "python":
            raise WrongValueError("a function's rows belong to no span: give a `path` without placeholders", "source")
    if any(map(is_template, sources)) and (error := compares_all_rows(split_by, duplicates)):
        raise error


def compares_all_rows(split_by: SplitBy | None, duplicates: Duplicates) -> WrongValueError | None:
    """Returns an error for the option that compares rows of all spans, if any; a build of one span lacks the others."""
    others = "each row with those of all spans, but a build reads only some"
    if duplicates.action != "keep":
        wrong, option = f"`{duplicates.action}` compares {others}: choose `keep`", ["duplicates"]
    elif duplicates.near:
        wrong, option = f"`near` compares {others}: leave it out", ["duplicates", "near"]
    elif split_by is not None and split_by.stratify is not None:
        wrong, option = f"`stratify` counts {others}: split by a column", ["split_by"]
    else:
        return None
    return WrongValueError(f"{wrong}, or choose a `path` without placeholders", *option)


class Pack(Options):
    """Rows of up to `length` ids, each of several records."""

    length: int = Field(ge=1, le=MOST_LENGTH, strict=True)
    """The ids of a row."""
    features: tuple[str, ...] = Field(min_length=1)
    """Lists of equal lengths in each record: a text, labels of its tokens, `raw` lists of int64. Others are rejects."""
    split: bool = False
    """Whether a record longer than a row is cut into pieces. Otherwise its first `length` ids are a row."""
    padding: dict[str, int] = {}
    """Values after a row's records, by feature; by default 0, for a text its padding id."""


Packs = Annotated[tuple[Pack, ...], BeforeValidator(one_or_list, Pack | tuple[Pack, ...])]


def check_packs(packs: Sequence[Pack], features: Mapping[str, Feature]) -> None:
    """Checks that packs are of lists of whole numbers. Raises: WrongValueError: its path starts at the spec."""
    lengths = [pack.length for pack in packs]
    for pack in packs:
        if lengths.count(pack.length) > 1:
            raise WrongValueError(f"two packs have the length {pack.length}: a reader chooses by it", "pack")
        for name in (*pack.features, *pack.padding):
            if not feature_named(name, features, "pack").is_packable:
                message = f"'{name}' is no text, no labels of tokens, no `raw` list of int64: leave it out"
                raise WrongValueError(message, "pack")
            if pack.features.count(name) != 1:
                raise WrongValueError(f"`features` should name '{name}' once", "pack")
            alone = all(each == name or getattr(features.get(each), "text", None) == name for each in pack.features)
            for option in () if alone else ("max_length", "window"):
                if getattr(features[name], option, None) is not None:
                    message = f"cuts '{name}' apart from the other lists of its pack: leave it out"
                    raise WrongValueError(message, "features", name, option)
            for part in ("segments", "positions"):
                if f"{name}_{part}" in features:
                    message = f"'{name}_{part}' holds the {part} of '{name}' in packed rows: rename the feature"
                    raise WrongValueError(message, "features", f"{name}_{part}")
