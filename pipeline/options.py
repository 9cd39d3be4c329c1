"""The base of all options in `dataset.yaml`: frozen, validated when made, without unknown keys."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

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


def _docstrings(options: type[Options]) -> dict[str, str]:
    """Returns the docstrings below a class's own attributes, by attribute."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(options))).body[0]
    texts = {}
    for before, statement in pairwise(getattr(tree, "body", [])):
        match before, statement:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts
