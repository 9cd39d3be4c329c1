"""The JSON Schema of `dataset.yaml`, by which editors complete, explain and check it while it is written.

It follows from the options' classes: their types, limits, defaults and docstrings. A spec that it refuses is wrong; one
that it accepts may still be, since some rules are of several options together, which only a build checks.
"""

import json
from pathlib import Path

from recordmill.pipeline import VERSION
from recordmill.pipeline.dataset.paths import write_atomically
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import Spec

SCHEMA_FILE = "dataset.schema.json"
"""The name beside a spec: in every checkout the same, so that the line in the spec is right on every machine."""
EDITOR_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE}\n"
"""The first line of a spec, by which editors with the YAML language server find the schema."""


def schema_text() -> str:
    """Returns the schema: JSON, which ends in a newline."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": f"Recordmill {VERSION}"}
    schema = {**head, **Spec.model_json_schema(), "title": "dataset.yaml of Recordmill"}
    return json.dumps(schema, indent=2) + "\n"


def write_schema(file: Path) -> None:
    """Writes the schema, or replaces it. Raises: UserError: the file cannot be written."""
    try:
        write_atomically(file, schema_text().encode())
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
