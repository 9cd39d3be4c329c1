"""Rows of several records: `pack`, for the lists that belong together in each of them."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from recordmill.pipeline.dataset.manifest_parts import MOST_LENGTH
from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.spec.features.feature import Feature, feature_named
from recordmill.pipeline.yaml_document import Options


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


Packs = Annotated[
    tuple[Pack, ...],
    BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,), Pack | tuple[Pack, ...]),
]


def check_packs(packs: Sequence[Pack], features: Mapping[str, Feature]) -> None:
    """Checks that packs are of lists of whole numbers. Raises: WrongValueError: its path starts at the spec."""
    lengths = [pack.length for pack in packs]
    for pack in packs:
        if lengths.count(pack.length) > 1:
            raise WrongValueError(f"two packs have the length {pack.length}: a reader chooses by it", "pack")
        for name in (*pack.features, *pack.padding):
            if not feature_named(name, features, "pack").is_packable:
                raise WrongValueError(
                    f"'{name}' is no text, no labels of tokens, no `raw` list of int64: leave it out", "pack"
                )
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
