"""Raw values: options of lists."""

from typing import Any

import pytest
from pydantic import ValidationError

from recordmill.transforms.values.values_spec import Raw
from tests.messages import raises


@pytest.mark.parametrize("option", [{"length": 2}, {"max_length": 2}, {"separator": ";"}])
def test_options_of_lists_need_lists(option: dict[str, Any]) -> None:
    with raises(ValidationError, f"`{next(iter(option))}`", "`many: true`"):
        Raw(kind="raw", **option)
