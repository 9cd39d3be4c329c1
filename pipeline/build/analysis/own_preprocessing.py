"""A tf.Transform function of the user's that extends or replaces what the features give.

    def preprocessing_fn(inputs, outputs):
        outputs["log_price"] = tf.math.log1p(inputs["price"])
        return outputs

`inputs` are the raw columns by feature, `outputs` what the built-in function made of them; what it returns is stored.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from recordmill.pipeline.build.context.failures import leaving_error
from recordmill.pipeline.build.context.workspace import Workspace
from recordmill.pipeline.dataset.paths import is_name
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.user_code import UserCode, blame, load
from recordmill.transforms.contract.stored import KEY

STORED = ("string", "int64", "float32")


class PreprocessingError(UserError):
    """The user's function gave what cannot be stored; the message is one clear line."""


class OwnPreprocessing:
    """The function by its name, with its modules: it travels to workers as that, and is imported where it is called."""

    def __init__(
        self, reference: str, label: str | None, code: UserCode | None = None, errors: Workspace | None = None
    ) -> None:
        """Takes the workspace in which a worker leaves its error (`context.failures`); None for none."""
        self._reference = reference
        self._label = label
        self._code = code
        self._errors = errors

    def __call__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what is stored, by name.

        Raises:
            UserCodeError: the function raised.
            PreprocessingError: it returned no mapping of tensors that can be stored, or left the label out.
        """
        # tf.Transform calls it in workers where no step of ours was set up.
        with nullcontext() if self._errors is None else leaving_error(self._errors):
            return self._call(inputs, outputs)

    def _call(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Any]:
        if self._code is not None:
            self._code.install()
        function = load(self._reference)
        try:
            outcome = function(dict(inputs), dict(outputs))
        except UserError:
            raise
        except Exception as error:
            raise blame(error, self._reference) from None
        if not isinstance(outcome, dict) or not all(isinstance(name, str) for name in outcome):
            got = type(outcome).__name__
            raise PreprocessingError(f"{self._reference} should return a dict of tensors by name, got {got}")
        if self._label is not None and self._label not in outcome:
            raise PreprocessingError(f"{self._reference} returned no '{self._label}', which is the label")
        if not outcome:
            raise PreprocessingError(f"{self._reference} returned nothing to store")
        for name, value in outcome.items():
            if wrong := _why_not_stored(name, value):
                raise PreprocessingError(f"{self._reference}: '{name}' {wrong}")
        return outcome


def _why_not_stored(name: str, value: Any) -> str | None:
    """Names the fault of a value that cannot be stored; reads attributes alone, to load without TensorFlow."""
    if name == KEY:
        return "is what every record's own key is stored under: call it otherwise"
    if not is_name(name):
        return "is no name: a letter, then letters, digits and underscores"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None or hasattr(value, "dense_shape"):
        return f"is a {type(value).__name__}: return a tensor, or a ragged one"
    if dtype.name not in STORED:
        return f"is {dtype.name}: cast it to float32, int64 or string, which are what a record holds"
    if hasattr(value, "row_splits"):
        return None if value.ragged_rank == 1 and shape.rank == 2 else "has lists in lists: one list a row is stored"
    if not shape.rank or not shape[1:].is_fully_defined():
        return f"has the shape {shape}: the first axis is the rows, all others need known sides, or make it ragged"
    return None
