"""The command that writes a version in another format; `commands` registers it."""

from pathlib import Path
from typing import Annotated

import typer

from recordmill.pipeline.cli.arguments import OtherVersion, VersionFolder
from recordmill.pipeline.cli.extras import EXPORT, check_extra
from recordmill.pipeline.cli.inspect_commands import choose
from recordmill.pipeline.cli.screen import count, print_line


def export(
    folder: VersionFolder,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A folder that is not there yet.", show_default=False)
    ],
    to: Annotated[str, typer.Option("--to", help="parquet or webdataset.", show_default=False)],
    split: Annotated[str | None, typer.Option(help="The only split to write.")] = None,
    version: OtherVersion = None,
) -> None:
    """Write a version's rows in another format, with the dataset.yaml that builds them again."""
    check_extra("build", EXPORT)
    from recordmill.pipeline.export.export import SPEC_FILE
    from recordmill.pipeline.export.export import export as write
    from recordmill.pipeline.reader.dataset import open_dataset
    from recordmill.transforms.contract.kinds.base import ExportError

    if "://" in target:
        raise ExportError(f"{target} is a URL: name a local folder, and copy it from there")
    done = write(open_dataset(str(choose(folder, version).folder)), to, Path(target), split)
    print_line(f"{count(done.rows, 'row')} in {count(done.files, 'file')}, {done.bytes:,} bytes: {target}")
    for note in done.notes:
        print_line(f"  {note}")
    if done.has_spec:
        print_line(f"`recordmill build {Path(target) / SPEC_FILE} --output DIR` builds these rows again")
