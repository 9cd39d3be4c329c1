"""The base of all options in `dataset.yaml`: frozen, validated when made, without unknown keys."""

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """A frozen group of options; refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
