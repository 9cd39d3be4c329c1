"""The command line: each command reads its arguments, calls one function, and prints the outcome.

Alone among the modules, those of commands, `source_files`, `session` and `build.entry` import inside functions, so that
each command loads only its own packages: `--help` loads neither Beam nor TensorFlow, and `show`, `diff`,
`versions …`, `head` (with Pillow) and `verify` without `--spec` run with NumPy, typer and rich alone.
"""

import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
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
from recordmill.pipeline.safe_text import frames_of, say, summary_of
from recordmill.pipeline.version import VERSION

FIRST_SCREEN = """Raw data in; a versioned, training-ready TFRecord dataset out.

\b
recordmill init DATA -o dataset.yaml   looks at data, and writes a spec
recordmill build dataset.yaml -o DIR   builds and publishes a version
recordmill show DIR                    shows it; open_dataset(DIR) reads it
"""
OF_VERSIONS = ("pin", "unpin", "rollback", "approve", "reject", "prune", "materialize", "forget")
MOVED = {"retry": "build --again"} | {name: f"versions {name}" for name in OF_VERSIONS}


class Commands(TyperGroup):
    """A group that names the command by which an older one was replaced."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command of the arguments. Raises: TyperException: no command has its name."""
        name = args[0]
        if self.get_command(ctx, name) is None and name in MOVED:
            raise TyperException(f"`recordmill {name}` is now `recordmill {MOVED[name]}`, with the same arguments")
        return super().resolve_command(ctx, args)


class VersionCommands(TyperGroup):
    """A group that says how versions are listed to one who names a dataset, not a command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command of the arguments. Raises: TyperException: no command has its name."""
        try:
            return super().resolve_command(ctx, args)
        except TyperException as error:
            listed = f"`recordmill versions list {args[0]}` lists a dataset's versions"
            raise TyperException(f"{error.format_message()} {listed}") from None


app = typer.Typer(name="recordmill", cls=Commands, no_args_is_help=True, add_completion=False, rich_markup_mode="rich")
of_versions = typer.Typer(cls=VersionCommands, no_args_is_help=True, rich_markup_mode="rich")
WITH_BEAM_OPTIONS = {"allow_extra_args": True}
EVERYDAY, MORE = "Everyday", "More"


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


@app.callback(help=FIRST_SCREEN)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Takes the options that stand before the command."""


def _add(command: Callable[..., Any], panel: str = EVERYDAY, *, takes_beam_options: bool = False) -> None:
    """Adds a command to a panel of the help."""
    if takes_beam_options:
        app.command(rich_help_panel=panel, cls=BeamCommand, context_settings=WITH_BEAM_OPTIONS)(command)
    else:
        app.command(rich_help_panel=panel)(command)


_add(build_commands.init, takes_beam_options=True)
_add(plan_commands.plan, takes_beam_options=True)
_add(build_commands.build, takes_beam_options=True)
_add(inspect_commands.show)
_add(inspect_commands.head)
_add(report_commands.preview)
_add(report_commands.report)
_add(version_commands.diff)
_add(version_commands.verify)
_add(export_commands.export)
_add(build_commands.doctor, MORE, takes_beam_options=True)
_add(spec_commands.schema, MORE)
app.add_typer(
    of_versions, name="versions", rich_help_panel=MORE, help="List, pin, approve, roll back and prune versions."
)
of_versions.command("list")(version_commands.versions)
for each in (
    version_commands.pin,
    version_commands.unpin,
    version_commands.rollback,
    gate_commands.approve,
    gate_commands.reject,
    version_commands.prune,
    version_commands.materialize,
    row_commands.forget,
):
    of_versions.command()(each)
