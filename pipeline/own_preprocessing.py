"""A tf.Transform function of the user's that extends or replaces what the features give.

    def preprocessing_fn(inputs, outputs):
        outputs["log_price"] = tf.math.log1p(inputs["price"])
        return outputs

`inputs` are the raw columns by feature, `outputs` what the built-in function made of them; what it returns is stored.
"""

import traceback
from collections.abc import Mapping
from typing import Any

from pipeline.errors import UserError
from pipeline.user_code import load


class PreprocessingError(UserError):
    """The user's function failed, or gave what cannot be stored; the message is one clear line."""


class OwnPreprocessing:
    """The function by its name: it travels to workers as that, and is imported where it is called."""

    def __init__(self, reference: str, label: str | None) -> None:
        self._reference = reference
        self._label = label

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Gives what is stored, by name.

        Raises:
            PreprocessingError: the function raised, returned no mapping of tensors, or left the label out.
        """
        function = load(self._reference)
        try:
            found = function(dict(inputs), dict(outputs))
        except UserError:
            raise
        except Exception as error:
            raise PreprocessingError(f"{self._reference} failed: {_last_line(error)}") from error
        if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
            got = type(found).__name__
            raise PreprocessingError(f"{self._reference} should return a dict of tensors by name, got {got}")
        if self._label is not None and self._label not in found:
            raise PreprocessingError(f"{self._reference} returned no '{self._label}', which is the label")
        return found


def _last_line(error: Exception) -> str:
    """Where in the user's code an error was raised, and what it says."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}{where}"
