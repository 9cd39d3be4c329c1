"""The commands on the candidate that the gate held back; `commands` registers them."""

from typing import Annotated

import typer

from recordmill.pipeline.cli.arguments import DatasetFolder
from recordmill.pipeline.cli.screen import print_line

CandidateName = Annotated[
    str | None,
    typer.Argument(
        help="The candidate's name, its number, or a part; by default the one that waits.", show_default=False
    ),
]


def approve(dataset: DatasetFolder, version: CandidateName = None) -> None:
    """Publish the version that the gate held back; by its name even if another became live since."""
    from recordmill.pipeline.versions import review

    candidate, before = review.approve(dataset, version)
    print_line(
        f"{candidate.version} is live now; {before} was, and stays: `recordmill versions rollback {dataset} {before}`"
    )


def reject(dataset: DatasetFolder, version: CandidateName = None) -> None:
    """Remove the version that the gate held back; what is live stays live."""
    from recordmill.pipeline.versions import review

    candidate, is_removed = review.reject(dataset, version)
    stays = "is removed" if is_removed else "stays, since it was live once, is pinned or is held, but waits no more"
    print_line(f"{candidate.version} {stays}; what is live stays live")
