"""Messages are tested by their facts: the value, the place and the remedy. Their sentences may change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

Error = TypeVar("Error", bound=BaseException)


def assert_names(message: object, *facts: object) -> None:
    """Asserts that a message, an error or an output holds each fact."""
    missing = [fact for fact in facts if str(fact) not in str(message)]
    assert not missing, f"{missing} missing from: {message}"


@contextmanager
def raises(error: type[Error] | tuple[type[Error], ...], *facts: object) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Asserts that the block raises `error` with a message that holds each fact."""
    with pytest.raises(error) as caught:
        yield caught
    assert_names(caught.value, *facts)
