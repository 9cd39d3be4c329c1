"""Arguments that several commands take."""

from typing import Annotated

import typer

DatasetFolder = Annotated[
    str, typer.Argument(metavar="DIR", help="The dataset's folder, or its URL.", show_default=False)
]
AnyVersion = Annotated[
    str, typer.Argument(metavar="[VERSION]", help="A version's name, number or part; or live, -1, …")
]
VersionFolder = Annotated[
    str, typer.Argument(help="The dataset's folder, or a version's; or its URL.", show_default=False)
]
OtherVersion = Annotated[
    str | None, typer.Option("--version", help="A version other than the live one: its name, its number, or a part.")
]
WorkFolder = Annotated[
    str | None,
    typer.Option(help="The local folder of rows on their way, for an output at a URL; by default in your cache."),
]
