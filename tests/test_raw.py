"""Raw values: options of lists, and a description of which each field is stated."""

from typing import Any

import pytest
from pydantic import ValidationError

from recordmill.transforms.values.values_spec import Raw
from recordmill.transforms.values.values_stored import RawDescription
from tests.messages import raises


def test_no_field_of_a_description_is_filled_by_an_equal_name_alone() -> None:
    with raises(TypeError, "RawDescription.optional", "take it"):
        Raw(kind="raw")._describe(RawDescription, "max_length", stored="int64", length=None)


@pytest.mark.parametrize("option", [{"length": 2}, {"max_length": 2}, {"separator": ";"}])
def test_options_of_lists_need_lists(option: dict[str, Any]) -> None:
    with raises(ValidationError, f"`{next(iter(option))}`", "`many: true`"):
        Raw(kind="raw", **option)
