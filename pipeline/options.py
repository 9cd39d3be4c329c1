"""The base of all options in `dataset.yaml`: frozen, validated when made, without unknown keys."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from recordmill.pipeline.safe_text import cut

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


class Options(BaseModel):
    """A frozen group of options; refuses unknown keys.

    An option's docstring describes it in the JSON Schema. It is read there alone: pydantic's `use_attribute_docstrings`
    reads and parses the source of every class when that is made, which took a third of loading a spec.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: "CoreSchema", handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Adds the options' docstrings."""
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).get("properties", {})
        for base in reversed(cls.__mro__):
            if issubclass(base, Options):
                for name, text in _docstrings(base).items():
                    if name in properties:
                        properties[name]["description"] = text
        return described


def number_or_list(value: Any, copies: int = 1) -> Any:
    """Reads a whole number as a list of so many copies of it. Raises: ValueError: it is neither that nor a list."""
    if type(value) is int:
        return (value,) * copies
    if not isinstance(value, list | tuple):
        raise ValueError(f"should be a whole number, or a list of them, got {cut(repr(value))}")
    return value


def _docstrings(options: type[Options]) -> dict[str, str]:
    """Returns the docstrings below a class's own attributes, by attribute."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(options))).body[0]
    texts = {}
    for before, statement in pairwise(getattr(tree, "body", [])):
        match before, statement:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts
