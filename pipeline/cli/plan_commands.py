"""The command that says what a build would do; `commands` registers it."""

from pathlib import Path
from typing import Annotated

import typer

from recordmill.pipeline.cli.extras import check_build_extra
from recordmill.pipeline.cli.screen import print_json, print_line
from recordmill.pipeline.cli.source_files import files_of

Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="The dataset's folder, or its URL: its live version is compared with.",
        show_default=False,
    ),
]


def plan(
    context: typer.Context,
    spec: Annotated[Path, typer.Argument(help="The dataset's spec: dataset.yaml.", show_default=False)],
    output: Output = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what a build would read, reject and write, and warn: `recordmill plan dataset.yaml [-- BEAM OPTIONS]`."""
    check_build_extra()
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.dataset.manifest import Manifest
    from recordmill.pipeline.forecast.forecast import forecast
    from recordmill.pipeline.forecast.page import lines_of
    from recordmill.pipeline.spec.model import load_spec

    parsed, options = load_spec(str(spec)), RunOptions(beam_options=tuple(context.args))
    result = forecast(parsed, files_of(parsed, context.args), output, options)
    if isinstance(result, Manifest):
        print_line(f"nothing has changed since {result.version} was built: a build would end at once")
    elif as_json:
        print_json(result.to_json())
    else:
        print_line("\n".join(lines_of(result)))
