"""The commands on specs alone; `commands` registers them."""

from pathlib import Path
from typing import Annotated

import typer

from recordmill.pipeline.cli.extras import check_build_extra


def schema(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file to write; by default the screen.", show_default=False)
    ] = None,
) -> None:
    """Print the JSON Schema of dataset.yaml, for editors."""
    check_build_extra()
    from recordmill.pipeline.spec.json_schema import schema_text, write_schema

    if output is None:
        print(schema_text(), end="")
    else:
        write_schema(output)
