"""The base of everything that a user writes in `dataset.yaml`: frozen, checked when made, no unknown keys."""

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """A frozen group of options; an unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
