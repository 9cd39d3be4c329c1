"""Commands that draw, compare, check or export versions; `commands` registers them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

from typer import Argument, Option

import recordmill
from recordmill.pipeline.cli.arguments import AsJson, DatasetFolder, OtherVersion, VersionFolder
from recordmill.pipeline.cli.extras import EXPORT, REPORT, check_build_extra, check_extra
from recordmill.pipeline.cli.screen import count, print_json, print_line, quiet
from recordmill.pipeline.dataset.paths import replacing, write_atomically
from recordmill.pipeline.errors import DatasetError

Sources = Annotated[Path | None, Option(metavar="DIR", help="The sources' folder, to show its images too.")]


def report(
    folder: VersionFolder,
    version: OtherVersion = None,
    sources: Sources = None,
    output: Annotated[
        Path | None, Option("--output", "-o", help="The file to write; by default NAME-report.html, here.")
    ] = None,
) -> None:
    """Write a page for any browser about a version, with images, distributions, rejects: `recordmill report DIR`."""
    check_extra("report", REPORT)
    from recordmill.pipeline.facts.page import report_of

    dataset = recordmill.open_dataset(folder, version)
    data = report_of(dataset, sources)
    file = output or Path(f"{dataset.name}-report.html")
    with _writing(file):
        write_atomically(file, data)
    print_line(f"{file}: {dataset.name} {dataset.version}, {len(data):,} bytes")


def preview(
    folder: VersionFolder,
    version: OtherVersion = None,
    split: Annotated[str | None, Option(help="The split; by default train, or any with --key.")] = None,
    key: Annotated[str | None, Option(help="The key of a row.")] = None,
    label: Annotated[str | None, Option("--class", metavar="NAME", help="A class of the label.")] = None,
    rejects: Annotated[bool, Option("--rejects", help="Show rejected rows, not records.")] = False,
    augment: Annotated[
        str | None, Option(metavar="TEXT", help="Augmentations to also show, such as 'RandomResizedCrop(224)'.")
    ] = None,
    sources: Sources = None,
    number: Annotated[int, Option("-n", min=1, max=200, help="How many rows.")] = 12,
    output: Annotated[
        Path | None, Option("--output", "-o", help="The PNG to write; by default NAME-preview.png, here.")
    ] = None,
) -> None:
    """Draw records as a model gets them, with boxes, texts and augmentations, as a PNG: `recordmill preview DIR`."""
    from recordmill.pipeline.facts import preview as previews
    from recordmill.pipeline.facts.preview import augmentations_of
    from recordmill.pipeline.facts.version import shown_split

    choice = {"--split": split, "--key": key, "--class": label, "--augment": augment}
    if rejects and (given := [name for name, value in choice.items() if value is not None]):
        raise DatasetError(f"{' and '.join(given)} are for records, and --rejects shows rows that became none")
    dataset = recordmill.open_dataset(folder, version)
    if rejects:
        image = previews.draw(previews.reject_cards(dataset, sources, number))
    else:
        split = split or (None if key is not None else shown_split(dataset.manifest))
        records = dataset.records(split, key=key, label=label, limit=number)
        image = previews.preview(dataset, records, augmentations_of(augment) if augment else (), sources)
    file = output or Path(f"{dataset.name}-preview.png")
    with _writing(file), replacing(file, durable=False) as new:
        image.save(new, "PNG")
    print_line(f"{file}: {image.width}×{image.height} pixels")


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    """Turns an OSError into one line about --output."""
    try:
        yield
    except OSError as error:
        raise DatasetError(f"{file} cannot be written ({error.strerror}): name another file by --output") from None


def diff(
    dataset: DatasetFolder,
    before: Annotated[
        str | None, Argument(metavar="A", help="By default the version before B.", show_default=False)
    ] = None,
    after: Annotated[str | None, Argument(metavar="B", help="By default the live version.", show_default=False)] = None,
    quick: Annotated[bool, Option("--quick", help="Compare the manifests, not the rows.")] = False,
    as_json: AsJson = False,
) -> None:
    """List changes from version A to version B: rows, ids, statistics, rejects: `recordmill diff DIR [A] [B]`."""
    from recordmill.pipeline.compare.diff import diff as diff_of
    from recordmill.pipeline.versions.listing import pair

    old, new = (recordmill.open_dataset(dataset, manifest.version) for manifest in pair(dataset, before, after))
    _print(diff_of(old, new, rows=not quick), as_json)


def verify(
    folder: VersionFolder,
    version: OtherVersion = None,
    spec: Annotated[Path | None, Option(help="dataset.yaml, to also serve and compare raw rows.")] = None,
    repair: Annotated[bool, Option("--repair", help="Rebuild damaged indexes, and shards with --spec.")] = False,
    sample: Annotated[int, Option(min=0, help="How many raw rows to compare.")] = 64,
    quick: Annotated[bool, Option("--quick", help="Compare only sizes and digests.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check a published version, file by file and record by record: `recordmill verify DIR`."""
    from recordmill.pipeline.verify.verify import NO_PARITY
    from recordmill.pipeline.verify.verify import verify as check

    if "://" in folder and (repair or spec is not None):
        raise DatasetError(f"{folder} is a URL: --spec and --repair need a local folder")
    if repair or spec is not None:
        check_build_extra()
    parsed = None
    if spec is not None:
        parsed = recordmill.load_spec(str(spec))
    report = check(folder, version, quick=quick)
    if parsed is not None and report.manifest.adopted:
        raise DatasetError(f"{folder} names adopted files, which no spec built: leave --spec out")
    if repair or parsed is not None:
        with quiet():  # Beam and TensorFlow print, also while they load
            from recordmill.pipeline.verify.parity import with_parity
            from recordmill.pipeline.verify.repair import repaired

            report = repaired(report, parsed) if repair else report
            report = with_parity(report, parsed, sample) if parsed is not None and sample else report
    if spec is None and not report.manifest.adopted:
        report.findings.unchecked.append(NO_PARITY)
    _print(report, as_json)
    return 0 if report.is_whole else 1


class _Report(Protocol):
    """A command's result, for programs and people."""

    def to_json(self) -> Any: ...

    def lines(self) -> Iterable[str]: ...


def _print(report: _Report, as_json: bool) -> None:
    if as_json:
        print_json(report.to_json())
    else:
        print_line("\n".join(report.lines()))


def export(
    folder: VersionFolder,
    target: Annotated[str, Argument(metavar="TARGET", help="A new or empty folder.", show_default=False)],
    to: Annotated[str, Option("--to", help="parquet or webdataset.", show_default=False)],
    split: Annotated[str | None, Option(help="Write only this split.")] = None,
    version: OtherVersion = None,
) -> None:
    """Write a version's rows in another format, with a dataset.yaml to rebuild them."""
    check_extra("build", EXPORT)
    from recordmill.pipeline.export.export import SPEC_FILE
    from recordmill.pipeline.export.export import export as write
    from recordmill.transforms.contract.kinds.base import ExportError

    if "://" in target:
        raise ExportError(f"{target} is a URL: name a local folder, and copy it from there")
    done = write(recordmill.open_dataset(folder, version), to, Path(target), split)
    print_line(f"{count(done.rows, 'row')} in {count(done.files, 'file')}, {done.bytes:,} bytes: {target}")
    for note in done.notes:
        print_line(f"  {note}")
    if done.has_spec:
        print_line(f"`recordmill build {Path(target) / SPEC_FILE} --output DIR` builds these rows again")
