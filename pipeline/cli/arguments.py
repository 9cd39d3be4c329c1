"""Arguments shared by commands."""

from typing import Annotated, Any

from typer import Argument, CallbackParam, Option
from typer.core import TyperCommand
from typer.exceptions import TyperException


def named(param: CallbackParam, value: Any) -> Any:
    """Passes paths, URLs or keys on. Raises: TyperException: one is empty, as of an unset variable."""
    if "" in (value if isinstance(value, list) else [value]):
        raise TyperException(f"{param.metavar or param.opts[0]} is empty, as of an unset variable: name one")
    return value


def to_folder(help_: str, metavar: str | None = None) -> Any:
    """Makes the argument of a folder, a URL or a key."""
    return Argument(metavar=metavar, help=help_, show_default=False, callback=named)


DatasetFolder = Annotated[str, to_folder("The dataset's folder, or its URL.", "DIR")]
VersionFolder = Annotated[str, to_folder("The dataset's folder, or a version's; or its URL.")]
VERSION_HELP = "A version instead of the live one: its name, number, or a part of the name."
OtherVersion = Annotated[str | None, Option("--version", help=VERSION_HELP)]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
Reason = Annotated[str, Option("--reason", metavar="TEXT", help="Why, for `recordmill history`.", show_default=False)]
WORK_HELP = "For an output at a URL: the local folder of unfinished builds; by default in your cache."
WorkFolder = Annotated[str | None, Option(help=WORK_HELP)]


def to_output(help_: str) -> Any:
    """Makes the option `--output`."""
    return Option("--output", "-o", help=help_, show_default=False, callback=named)


class VersionCommand(TyperCommand):
    """A command with versions as arguments: `-1` names one, not an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. Raises: TyperException: an unknown option, or too many arguments."""
        ctx.ignore_unknown_options = any(arg[:1] == "-" and arg[1:].isdecimal() for arg in args)
        return super().parse_args(ctx, args)


class BeamCommand(TyperCommand):
    """A command that also takes Beam's options, but no other unknown arguments."""

    allow_extra_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. Raises: TyperException: too many, not counting options."""
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.args[0].startswith("--"):
            excess = f"the argument '{ctx.args[0]}' is one too many for `recordmill {ctx.info_name}`"
            raise TyperException(f"{excess}: quote a glob; Beam's options come after -- and begin with --")
        return rest
