"""The command line: `recordmill init | build | show | schema`. Answers `--help` without loading Beam or TensorFlow.

Alone among the modules it imports inside functions: what a command needs is loaded when that command runs.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from pipeline.errors import UserError
from pipeline.manifest import MANIFEST_FILE, DatasetError, read_latest, read_manifest, version_folder
from pipeline.version import VERSION

app = typer.Typer(
    name="recordmill",
    help="Raw data in; a versioned, training-ready TFRecord dataset out.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


def main() -> None:
    """Runs the command line; a user's mistake is one line on standard error and a non-zero exit."""
    try:
        status = app(standalone_mode=False)
    except TyperException as error:
        if error.format_message():  # none where the help was printed because there were no arguments
            fail(error.format_message(), 2)
        sys.exit(2)
    except UserError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}")
    sys.exit(status or 0)


def fail(message: str, status: int = 1) -> None:
    """Says what went wrong, a line each, and ends the process."""
    for line in message.splitlines() or ["failed"]:
        print(f"recordmill: {line}", file=sys.stderr)
    sys.exit(status)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"recordmill {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Raw data in; a versioned, training-ready TFRecord dataset out."""


@app.command(context_settings={"allow_extra_args": True})
def init(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="A folder, a file or a glob, local or a URL.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="The dataset's name; by default of the path.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file to write, such as dataset.yaml; by default the screen."),
    ] = None,
) -> None:
    """Look at data and print a starter dataset.yaml, with reasons: `recordmill init PATH [-- BEAM OPTIONS]`."""
    from pipeline.files import BeamFiles, use_options
    from pipeline.starter.starter import starter, write_new

    if context.args:
        from pipeline.runners import make_runner

        use_options(make_runner("local", 1, context.args)[1])
    if output is None:
        print(starter(path, BeamFiles(), name), end="")
    else:
        write_new(output, lambda: starter(path, BeamFiles(), name, str(output.parent)))


@app.command(context_settings={"allow_extra_args": True})
def build(
    context: typer.Context,
    spec: Annotated[Path, typer.Argument(help="The dataset's spec: dataset.yaml.", show_default=False)],
    output: Annotated[str, typer.Option("--output", "-o", help="The dataset's folder.", show_default=False)],
    runner: Annotated[
        str, typer.Option(help="'local', or one of Beam's runners, such as PortableRunner; its options come after --.")
    ] = "local",
    processes: Annotated[
        int, typer.Option(min=1, help="Worker processes of the local runner; one uses every core by threads.")
    ] = 1,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Build a dataset and publish it: `recordmill build dataset.yaml --output DIR [-- BEAM OPTIONS]`."""
    from pipeline.session import BuildSession
    from pipeline.spec import load_spec

    parsed = load_spec(str(spec))
    BuildSession(output, quiet).run(parsed, runner, processes, tuple(context.args))


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="The dataset's folder, or a version's.", show_default=False)],
    version: Annotated[str | None, typer.Option(help="A version other than the live one.")] = None,
) -> None:
    """Show a dataset: its versions, splits, features, statistics and rejects."""
    from pipeline.show import print_dataset

    if (folder / MANIFEST_FILE).is_file():
        if version is not None:
            raise DatasetError(f"{folder} is a version already: leave out --version, or name the dataset's folder")
        print_dataset(read_manifest(folder), folder, live=None)
        return
    live = read_latest(folder).version
    chosen = version_folder(folder, version or live)
    print_dataset(read_manifest(chosen), chosen, live=live)


@app.command()
def schema() -> None:
    """Print the JSON Schema of dataset.yaml, for editors."""
    from pipeline.spec import Spec

    print(json.dumps(Spec.model_json_schema(), indent=2))
