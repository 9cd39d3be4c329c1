"""The command line: each command reads its arguments, calls one function, and prints the outcome.

The modules of commands and `session` import inside functions, to load only the needed packages: `--help` loads neither
Beam nor TensorFlow; `show`, `diff`, `versions`, `head` (with Pillow) and `verify` without `--spec` need only NumPy,
typer and rich.
"""

import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from recordmill.pipeline import VERSION
from recordmill.pipeline.cli import build_commands, inspect_commands
from recordmill.pipeline.cli import version_commands as acts
from recordmill.pipeline.cli.arguments import BeamCommand, VersionCommand
from recordmill.pipeline.errors import ExitCode, UserError, code_of, did_you_mean
from recordmill.pipeline.private_folder import end_by_signal
from recordmill.pipeline.safe_text import frames_of, say, summary_of

FIRST_SCREEN = """Raw data in; a versioned, training-ready TFRecord dataset out.

\b
recordmill init DATA -o dataset.yaml   looks at data, and writes a spec
recordmill build dataset.yaml -o DIR   builds and publishes a version
recordmill show DIR                    shows it; open_dataset(DIR) reads it
"""
OF_VERSIONS = acts.pin, acts.tag, acts.unpin, acts.rollback, acts.approve, acts.reject, acts.prune, acts.forget
MOVED = {"retry": "build --again"} | {command.__name__: f"versions {command.__name__}" for command in OF_VERSIONS}
"""Commands typed at a wrong place, and the command to type."""


class Commands(TyperGroup):
    """A group that answers a misplaced command, or a dataset instead of a command, with the command to type."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command of the arguments. Raises: TyperException: unknown command."""
        name = args[0]
        if name in self.commands:
            return super().resolve_command(ctx, args)
        if self.name == "versions":
            near = did_you_mean(name, self.commands, "`recordmill versions {}`")
            remedy = near or f"; `recordmill versions list {name}` lists versions"
            other = f"; it is `recordmill {' '.join(args)}`" if name in ctx.parent.command.commands else remedy
            raise TyperException(f"unknown command '{name}'{other}")
        if name in MOVED:
            raise TyperException(f"`recordmill {name}` is `recordmill {MOVED[name]}`, with the same arguments")
        return super().resolve_command(ctx, args)


app = typer.Typer(name="recordmill", cls=Commands, no_args_is_help=True, add_completion=False, rich_markup_mode="rich")
of_versions = typer.Typer(
    name="versions", cls=Commands, no_args_is_help=True, help="List, pin, approve, roll back and prune versions."
)
EVERYDAY, MORE = "Everyday", "More"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line, by default with the process's arguments; prints an error as one line, and exits."""
    signal.signal(signal.SIGTERM, end_by_signal)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = app(arguments, prog_name="recordmill", standalone_mode=False)
    except TyperException as error:
        if error.format_message():  # empty after the help that no arguments print
            fail(error.format_message().replace("Value error, ", ""), ExitCode.USAGE)
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
    """Prints the lines of a message, and exits."""
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
    """Takes the options before the command."""


def _add(command: Callable[..., Any], panel: str = EVERYDAY, cls: type[TyperCommand] | None = None) -> None:
    app.command(rich_help_panel=panel, cls=cls)(command)


_add(build_commands.init, cls=BeamCommand)
_add(build_commands.plan, cls=BeamCommand)
_add(build_commands.build, cls=BeamCommand)
_add(build_commands.adopt, cls=build_commands.AdoptCommand)
_add(inspect_commands.show)
_add(inspect_commands.head)
_add(inspect_commands.preview)
_add(inspect_commands.report)
_add(inspect_commands.diff, cls=VersionCommand)
_add(inspect_commands.verify)
_add(inspect_commands.export)
_add(acts.history, MORE)
_add(build_commands.doctor, MORE, cls=BeamCommand)
_add(build_commands.schema, MORE)
app.add_typer(of_versions, rich_help_panel=MORE)
of_versions.command("list")(acts.list_)
for command in OF_VERSIONS:
    takes_keys = command is acts.forget  # a key may be `-1`: keys come after --
    of_versions.command(cls=None if takes_keys else VersionCommand)(command)
