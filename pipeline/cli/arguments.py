"""Arguments that several commands take."""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

DatasetFolder = Annotated[
    str, typer.Argument(metavar="DIR", help="The dataset's folder, or its URL.", show_default=False)
]
VersionFolder = Annotated[
    str, typer.Argument(help="The dataset's folder, or a version's; or its URL.", show_default=False)
]
OtherVersion = Annotated[
    str | None, typer.Option("--version", help="A version other than the live one: its name, its number, or a part.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why, for `recordmill history`.", show_default=False)
]
WorkFolder = Annotated[
    str | None,
    typer.Option(help="The local folder of unfinished builds, if the output is a URL; by default in your cache."),
]


class VersionCommand(TyperCommand):
    """A command whose arguments name versions: `-1` is one, and no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. Raises: TyperException: an option that there is not, or one too many."""
        ctx.ignore_unknown_options = any(arg[:1] == "-" and arg[1:].isdecimal() for arg in args)
        return super().parse_args(ctx, args)


class BeamCommand(TyperCommand):
    """A command that also takes Beam's options, and refuses any other argument that it does not know."""

    allow_extra_args = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. Raises: TyperException: one too many, which is no option."""
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.args[0].startswith("--"):
            raise TyperException(
                f"the argument '{ctx.args[0]}' is one too many for `recordmill {ctx.info_name}`: put a glob into "
                "quotes; Beam's options come after -- and begin with --"
            )
        return rest
