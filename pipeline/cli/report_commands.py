"""The commands that show a dataset in images; `commands` registers them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recordmill.pipeline.cli.arguments import OtherVersion, VersionFolder
from recordmill.pipeline.cli.extras import REPORT, check_extra
from recordmill.pipeline.cli.screen import print_line, print_with_codes
from recordmill.pipeline.dataset.atomic_files import write_atomically
from recordmill.pipeline.errors import DatasetError

if TYPE_CHECKING:
    from PIL.Image import Image

    from recordmill.pipeline.reader.dataset import Dataset


Sources = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder of the sources: their images are shown, too, where they are there."),
]


def report(
    folder: VersionFolder,
    version: OtherVersion = None,
    sources: Sources = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write; by default NAME-report.html, here.")
    ] = None,
) -> None:
    """Write a page about a version, to open in any browser: images, distributions, rejects: `recordmill report DIR`."""
    check_extra("report", REPORT)
    from recordmill.pipeline.facts.page import report_of
    from recordmill.pipeline.reader.dataset import open_dataset

    dataset = open_dataset(folder, version)
    data = report_of(dataset, sources)
    file = output or Path(f"{dataset.name}-report.html")
    write_atomically(file, data)
    print_line(f"{file}: {dataset.name} {dataset.version}, {len(data):,} bytes")


def preview(
    folder: VersionFolder,
    version: OtherVersion = None,
    split: Annotated[str | None, typer.Option(help="A split; by default train, or of any with --key.")] = None,
    key: Annotated[str | None, typer.Option(help="The key of a row.")] = None,
    label: Annotated[str | None, typer.Option("--class", metavar="NAME", help="A class of the label.")] = None,
    rejects: Annotated[bool, typer.Option("--rejects", help="Show rejected rows, not records.")] = False,
    augment: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Augmentations to show beside the stored image: 'RandomResizedCrop(224)'."),
    ] = None,
    sources: Sources = None,
    number: Annotated[int, typer.Option("-n", min=1, max=200, help="How many rows.")] = 12,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A PNG to write; by default the terminal, if it shows images, or a file."),
    ] = None,
) -> None:
    """Draw records as a model gets them, with boxes and texts, also augmented: `recordmill preview DIR`."""
    from recordmill.pipeline.facts import preview as previews
    from recordmill.pipeline.facts.preview import augmentations_of
    from recordmill.pipeline.reader.dataset import open_dataset

    choice = {"--split": split, "--key": key, "--class": label, "--augment": augment}
    if rejects and (given := [name for name, value in choice.items() if value is not None]):
        raise DatasetError(f"{' and '.join(given)} are for records, and --rejects shows rows that became none")
    dataset = open_dataset(folder, version)
    if rejects:
        image = previews.draw(previews.reject_cards(dataset, sources, number))
    else:
        split = split or (None if key is not None else next(iter(dataset.splits)))
        records = dataset.records(split, key=key, label=label, limit=number)
        image = previews.preview(dataset, records, augmentations_of(augment) if augment else (), sources)
    _show(image, dataset, output)


def _show(image: "Image", dataset: "Dataset", output: Path | None) -> None:
    """Shows an image in a terminal that can, or writes it to a file."""
    if output is None and sys.stdout.isatty():
        from textual_image.renderable import Image as Shown  # asks the terminal what it knows, when it is loaded
        from textual_image.renderable import SixelImage, TGPImage

        if issubclass(Shown, SixelImage | TGPImage):
            print_with_codes(Shown(image))
            return
    file = output or Path(f"{dataset.name}-preview.png")
    try:
        image.save(file, "PNG")
    except OSError as error:
        raise DatasetError(f"{file} cannot be written ({error.strerror}): name another file by --output") from None
    print_line(f"{file}: {image.width}×{image.height} pixels")
