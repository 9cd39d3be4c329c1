"""Lists that belong together: in each row all of them have the same number of values."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.spec.features.base import Feature, feature_named


def _groups(value: Any) -> Any:
    """Reads a list of names as the only group."""
    return (value,) if isinstance(value, list | tuple) and value and isinstance(value[0], str) else value


Group = tuple[str, ...]
Together = Annotated[tuple[Group, ...], BeforeValidator(_groups, Group | tuple[Group, ...])]
"""Groups of features; a single one may be written without the outer list."""


def check_together(groups: tuple[Group, ...], features: Mapping[str, Feature]) -> None:
    """Checks that each group is of two different features or more, all of them lists.

    Raises:
        WrongValueError: it is not; its path begins at the spec.
    """
    for group in groups:
        if len(set(group)) < max(2, len(group)):
            message = f"should name two lists or more, each once, got [{', '.join(group)}]"
            raise WrongValueError(message, "together")
        for name in group:
            feature = feature_named(name, features, "together")
            column = feature.raw_column()
            if column is None or not column.many:
                message = f"'{name}' is of kind {feature.kind}, one value a row: only lists have lengths to compare"
                raise WrongValueError(message, "together")
