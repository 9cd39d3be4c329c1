"""A tf.Transform function of the user's that extends or replaces what the features give.

    def preprocessing_fn(inputs, outputs):
        outputs["log_price"] = tf.math.log1p(inputs["price"])
        return outputs

`inputs` are the raw columns by feature, `outputs` what the built-in function made of them; what it returns is stored.
"""

from collections.abc import Mapping
from typing import Any

from pipeline.errors import UserError
from pipeline.user_code import blame, load


class PreprocessingError(UserError):
    """The user's function gave what cannot be stored; the message is one clear line."""


class OwnPreprocessing:
    """The function by its name: it travels to workers as that, and is imported where it is called."""

    def __init__(self, reference: str, label: str | None) -> None:
        self._reference = reference
        self._label = label

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Gives what is stored, by name.

        Raises:
            UserCodeError: the function raised.
            PreprocessingError: it returned no mapping of tensors, or left the label out.
        """
        function = load(self._reference)
        try:
            found = function(dict(inputs), dict(outputs))
        except UserError:
            raise
        except Exception as error:
            raise blame(error, self._reference) from None
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
            got = type(found).__name__
            raise PreprocessingError(f"{self._reference} should return a dict of tensors by name, got {got}")
        if self._label is not None and self._label not in found:
            raise PreprocessingError(f"{self._reference} returned no '{self._label}', which is the label")
        return found
