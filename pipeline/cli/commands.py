"""The command line: each command reads its arguments, calls one function, and prints the outcome.

Alone among the modules, those of commands, `source_files`, `session` and `build.entry` import inside functions, so that
each command loads only its own packages: `--help` loads neither Beam nor TensorFlow, and `show`, `versions`, `diff`,
`pin`, `prune`, `rollback`, `materialize`, `head` (with Pillow) and `verify` without `--spec` run with NumPy, typer and
rich alone.
"""

import signal
import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from recordmill.pipeline.cli import (
    build_commands,
    export_commands,
    gate_commands,
    inspect_commands,
    plan_commands,
    report_commands,
    row_commands,
    spec_commands,
    version_commands,
)
from recordmill.pipeline.cli.arguments import BeamCommand
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode, code_of
from recordmill.pipeline.private_folder import end_by_signal
from recordmill.pipeline.safe_tracebacks import frames_of, summary_of
from recordmill.pipeline.terminal_text import say
from recordmill.pipeline.version import VERSION

app = typer.Typer(
    name="recordmill",
    help="Raw data in; a versioned, training-ready TFRecord dataset out.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
WITH_BEAM_OPTIONS = {"allow_extra_args": True}


def main() -> None:
    """Runs the command line; a user's mistake is one line on standard error and a non-zero exit."""
    signal.signal(signal.SIGTERM, end_by_signal)
    try:
        status = app(standalone_mode=False)
    except TyperException as error:
        if error.format_message():  # empty after the help that no arguments print
            fail(error.format_message(), ExitCode.USAGE)
        sys.exit(ExitCode.USAGE)
    except UserError as error:
        fail(str(error), code_of(error))
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        fail(message or str(error), code_of(error))
    except Exception as error:
        fail(f"failed unexpectedly: {summary_of(error)}\n{frames_of(error)}")
    sys.exit(status or 0)


def fail(message: str, status: int = ExitCode.ERROR) -> None:
    """Prints a message, a line each, and ends the process."""
    say(message.rstrip("\n") or "failed", sys.stderr)
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


app.command(cls=BeamCommand, context_settings=WITH_BEAM_OPTIONS)(build_commands.init)
app.command(cls=BeamCommand, context_settings=WITH_BEAM_OPTIONS)(plan_commands.plan)
app.command(
    "build",
    cls=BeamCommand,
    context_settings=WITH_BEAM_OPTIONS,
    help="Build a dataset and publish it: `recordmill build dataset.yaml --output DIR [-- BEAM OPTIONS]`.",
)(build_commands.build)
app.command(
    "retry",
    cls=BeamCommand,
    context_settings=WITH_BEAM_OPTIONS,
    help="Build again, and publish if other rows are rejected than before; takes the options of `build`.",
)(build_commands.build)
app.command(cls=BeamCommand, context_settings=WITH_BEAM_OPTIONS)(build_commands.doctor)
app.command()(inspect_commands.show)
app.command()(inspect_commands.head)
app.command()(export_commands.export)
app.command()(version_commands.versions)
app.command()(version_commands.diff)
app.command()(version_commands.rollback)
app.command()(gate_commands.approve)
app.command()(gate_commands.reject)
app.command()(version_commands.pin)
app.command()(version_commands.unpin)
app.command()(version_commands.prune)
app.command()(report_commands.preview)
app.command()(report_commands.report)
app.command()(version_commands.materialize)
app.command()(row_commands.forget)
app.command()(spec_commands.schema)
app.command()(version_commands.verify)
