"""The JSON Schema of `dataset.yaml`, with which editors complete, explain and check a spec.

Derived from the options' classes: types, limits, defaults and docstrings. A refused spec is wrong; an accepted one may
still be, because only a build checks rules across several options.
"""

import json
from pathlib import Path

from recordmill.pipeline import VERSION
from recordmill.pipeline.dataset.paths import write_atomically
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import Spec

SCHEMA_FILE = "dataset.schema.json"
"""The schema's file beside a spec; the relative name is valid on every machine."""
EDITOR_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
"""The first line of a spec: tells the YAML language server of an editor the schema."""


def schema_text() -> str:
    """Returns the schema as JSON that ends in a newline."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": f"Recordmill {VERSION}"}
    schema = {**head, **Spec.model_json_schema(), "title": "dataset.yaml of Recordmill"}
    return json.dumps(schema, indent=2) + "\n"


def write_schema(file: Path) -> None:
    """Writes or replaces the schema. Raises: UserError: the file cannot be written."""
    try:
        write_atomically(file, schema_text().encode())
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
