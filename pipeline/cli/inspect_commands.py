"""Commands that show, draw, compare, check or export versions; `commands` registers them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import recordmill
from recordmill.pipeline.cli.arguments import AsJson, DatasetFolder, OtherVersion, VersionFolder, to_folder, to_output
from recordmill.pipeline.cli.extras import EXPORT, REPORT, check_extra
from recordmill.pipeline.cli.screen import count, print_json, print_line, quiet
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.dataset.paths import replacing, write_atomically
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import printable

if TYPE_CHECKING:
    from PIL.Image import Image

    from recordmill.pipeline.compare.diff import Diff
    from recordmill.pipeline.dataset.manifest import Location, Manifest
    from recordmill.pipeline.verify.files import Verification
    from recordmill.pipeline.versions.listing import Version

DRAWN = 200  # rows on a page
AUGMENT_HELP = "Augmentations to also show, such as 'RandomResizedCrop(224)'."
SOURCES_HELP = "The sources' folder, to show its images too."
Sources = Annotated[Path | None, Option(metavar="DIR", exists=True, file_okay=False, help=SOURCES_HELP)]


def show(
    folder: VersionFolder,
    version: OtherVersion = None,
    record: Annotated[str | None, Option(metavar="KEY", help="Say where the record of a key is.")] = None,
    spec: Annotated[Path | None, Option(help="dataset.yaml, with --record or --step: search its sources.")] = None,
    step: Annotated[int | None, Option(min=0, help="Show the rows of a training's step.")] = None,
    state: Annotated[Path | None, Option(help="With --step: a file with the training's state, as JSON.")] = None,
    seed: Annotated[int | None, Option(help="Without a state: the training's seed; by default 0.")] = None,
    batch_size: Annotated[int | None, Option(help="Without a state: the rows of a host's batch.")] = None,
    split: Annotated[str | None, Option(help="Without a state: the training's split; by default train.")] = None,
    hosts: Annotated[int, Option(min=1, help="With --step: the training's hosts.")] = 1,
    without: Annotated[list[Path] | None, Option(help="With --step: keys that the training left out, a file.")] = None,
    mixed: Annotated[list[str] | None, Option(help="With --state: another dataset of its mixture.")] = None,
    png: Annotated[Path | None, to_output("With --step: a PNG to write, with the rows' images.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a dataset: its versions, splits, features, statistics and rejects; where a record is; or a step's rows."""
    from recordmill.pipeline.cli.show import print_dataset
    from recordmill.pipeline.versions.listing import list_versions
    from recordmill.pipeline.versions.stores.open_store import open_location

    if spec is not None and record is None and step is None:
        raise DatasetError("--spec is for --record KEY and --step: its sources are searched for rows")
    if as_json and (record is not None or png is not None):
        raise DatasetError(f"--record and --output have no --json: `recordmill head {folder} --key KEY --json` has it")
    if step is None and any(each not in (None, []) for each in (state, seed, batch_size, split, without, mixed, png)):
        raise DatasetError("--step N is missing: the other options say of which training")
    if step is not None:
        if record is not None:
            raise DatasetError("--record is of a key, and --step of a training: give one")
        if png is not None and not png.absolute().parent.is_dir():
            raise DatasetError(f"{png} cannot be written: there is no folder {png.parent}; make it, or change --output")
        from recordmill.pipeline.cli import step as steps

        given: dict[str, Any] = {"split": split, "batch_size": batch_size, "seed": seed, "host_count": hosts}
        given["without"] = without[0] if without else None
        facts = steps.state_of((folder, version), step, state, mixed, given)
        opened = steps.open_datasets([folder, *(mixed or ())], facts)
        if len(opened) > 1 and (spec or png):
            raise DatasetError("--spec and --output are for one dataset, and this is a mixture of several")
        records = steps.show_step(facts, opened, step, hosts, without or [], spec, as_json=as_json)
        if png is not None:
            from recordmill.pipeline.facts import preview as previews

            [dataset] = opened.values()
            image = previews.preview(dataset, records[:DRAWN])
            _draw(png, image, f", {min(DRAWN, len(records)):,} of {count(len(records), 'record')}")
        return
    dataset = recordmill.open_dataset(folder, version)
    output = None if (open_location(folder) / MANIFEST_FILE).is_file() else folder  # None: a version's folder
    if record is not None:
        show_record(dataset.folder, dataset.manifest, record, output, spec)
        return
    versions = [] if output is None else list_versions(output)
    if as_json:
        print_json(_to_json(dataset, versions))
    else:
        print_dataset(dataset.manifest, dataset.folder, versions)


def head(
    folder: VersionFolder,
    records: Annotated[int, Option("-n", "--records", min=1, help="The maximum number of records.")] = 5,
    split: Annotated[str | None, Option(help="The split; by default the first with records.")] = None,
    key: Annotated[str | None, Option(help="The key of the records.")] = None,
    label: Annotated[str | None, Option("--class", metavar="NAME", help="The label's class.")] = None,
    span: Annotated[str | None, Option(help="The span.")] = None,
    version: OtherVersion = None,
    as_json: Annotated[bool, Option("--json", help="Print each record as a line of JSON.")] = False,
) -> None:
    """Show a sample of records, by the keys' hashes: `recordmill head DIR -n 5 --split test --class cat`."""
    from recordmill.pipeline.inspection import lines_of, read_records, record_to_json

    dataset = recordmill.open_dataset(folder, version)
    is_empty = True
    for record in read_records(dataset, split, key=key, label=label, span=span, limit=records):
        if as_json:
            print_json(record_to_json(record), indent=None)
        else:
            print_line("\n".join([*([] if is_empty else [""]), *lines_of(record)]))
        is_empty = False
    if is_empty:
        where = "counts them" if key is None else "says whether it is elsewhere, rejected or forgotten"
        command = f"recordmill show {folder}" + ("" if key is None else f" --record {quote(key)}")
        raise DatasetError(f"{dataset.version} has no such record: `{command}` {where}")


def _to_json(dataset: "recordmill.Dataset", versions: list["Version"]) -> dict[str, Any]:
    """Returns the manifest with folder and versions; shards are counted."""
    manifest = json.loads(dataset.manifest.to_text())
    del manifest["files"]
    for split in manifest["splits"].values():
        split["shards"] = len(split["shards"])
    listed = [
        {
            "version": version.manifest.version,
            "sequence": version.manifest.sequence,
            "built_at": version.manifest.provenance.get("built_at"),
            "records": version.manifest.records,
            "bytes": version.manifest.bytes,
            "live": version.is_live,
            "held_back": version.is_held_back,
            "trial": bool(version.manifest.trial),
            "pinned": version.is_pinned,
            "tags": version.tags,
            "held_by": list(map(str, version.held_by)),
            "retired": version.retired,
        }
        for version in versions
    ]
    return {**manifest, "digest": dataset.manifest.digest, "folder": str(dataset.folder), "versions": listed}


def show_record(folder: "Location", manifest: "Manifest", key: str, output: str | None, spec: Path | None) -> None:
    """Prints where a key's record is, with `spec` also in the source, or why it is missing. Raises: DatasetError."""
    from recordmill.pipeline.dataset.placement import as_key, digest
    from recordmill.pipeline.rows import find_records, rejects_of
    from recordmill.pipeline.versions.base import read_forgotten
    from recordmill.pipeline.versions.stores.open_store import open_store

    rows = find_records(folder, manifest, key)
    for row in rows:
        span = f", span {row.shard.span}" if row.shard.span else ""
        folder_of = f", in the folder of the version {row.shard.version}" if row.shard.version else ""
        place = f"record {row.record:,} of {row.shard.file}, at byte {row.offset:,}, {len(row.data):,} bytes{folder_of}"
        print_line(f"{printable(key)}: split {row.split}, position {row.position:,}{span}\n  {place}")
    if rows and spec is not None:
        from recordmill.pipeline.cli.step import origins_of

        for origin in origins_of(spec, folder, manifest, [(key, row.shard.span) for row in rows])[key]:
            print_line(f"  from {printable(origin)}")
    elif rows:
        names = ", ".join(f"{each.get('format', '')} {each.get('path', '')}".strip() for each in manifest.sources)
        print_line(f"  from {printable(names)}; --spec dataset.yaml finds the file and line")
    if rows:
        return
    rejects = [each for each in rejects_of(folder, manifest) if each.get("id") == key]
    for reject in rejects:
        line = "" if reject.get("line") is None else f", line {reject['line']}"
        place = f"{reject.get('code')}: {reject.get('file')}{line}"
        print_line(f"{printable(key)}: rejected, {printable(place)}")
    since = None
    if output is not None:
        forgotten = read_forgotten(open_store(output)).named_in(manifest)
        since = forgotten.keys.get(digest(as_key(key)).hex())
    if since:
        print_line(f"{printable(key)}: forgotten since {since}")
    elif not rejects:
        missing = f"{manifest.version} has no record of the key '{printable(key)}', and rejected none"
        raise DatasetError(f"{missing}: `recordmill head {output or folder}` shows some keys")


def report(
    folder: VersionFolder,
    version: OtherVersion = None,
    sources: Sources = None,
    label: Annotated[str | None, Option("--class", metavar="NAME", help="Show up to 500 records of one class.")] = None,
    output: Annotated[Path | None, to_output("The file to write; by default NAME-report.html, here.")] = None,
) -> None:
    """Write a page for any browser about a version, with images, distributions, rejects: `recordmill report DIR`."""
    check_extra("report", REPORT)
    from recordmill.pipeline.facts.page import report_of

    dataset = recordmill.open_dataset(folder, version)
    data = report_of(dataset, sources, label=label)
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
    augment: Annotated[str | None, Option(metavar="TEXT", help=AUGMENT_HELP)] = None,
    sources: Sources = None,
    number: Annotated[int, Option("-n", min=1, max=200, help="How many rows.")] = 12,
    output: Annotated[Path | None, to_output("The PNG to write; by default NAME-preview.png, here.")] = None,
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
    _draw(output or Path(f"{dataset.name}-preview.png"), image)


def _draw(file: Path, image: "Image", of: str = "") -> None:
    with _writing(file), replacing(file, durable=False) as new:
        image.save(new, "PNG")
    print_line(f"{file}: {image.width}×{image.height} pixels{of}")


@contextmanager
def _writing(file: Path, other: str = "another file by --output") -> Iterator[None]:
    """Turns an OSError into one line with the file or folder."""
    try:
        yield
    except OSError as error:
        raise DatasetError(f"{file} cannot be written ({error.strerror}): name {other}") from None


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
    sample: Annotated[int, Option(min=0, help="How many raw rows to compare.")] = 64,
    quick: Annotated[bool, Option("--quick", help="Compare only sizes and digests.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check a published version, file by file and record by record: `recordmill verify DIR`."""
    from recordmill.pipeline.verify.verify import NO_PARITY
    from recordmill.pipeline.verify.verify import verify as check

    if "://" in folder and spec is not None:
        raise DatasetError(f"{folder} is a URL: --spec needs a local folder")
    parsed = None
    if spec is not None:
        check_extra()
        parsed = recordmill.load_spec(str(spec))
    report = check(folder, version, quick=quick)
    if parsed is not None and report.manifest.adopted:
        raise DatasetError(f"{folder} names adopted files, which no spec built: leave --spec out")
    if parsed is not None and sample:
        with quiet():  # Beam and TensorFlow print, also while they load
            from recordmill.pipeline.verify.parity import with_parity

            report = with_parity(report, parsed, sample)
    if spec is None and not report.manifest.adopted:
        report.findings.unchecked.append(NO_PARITY)
    _print(report, as_json)
    return 0 if report.is_whole else 1


def _print(report: "Diff | Verification", as_json: bool) -> None:
    if as_json:
        print_json(report.to_json())
    else:
        print_line("\n".join(report.lines()))


def export(
    folder: VersionFolder,
    target: Annotated[str, to_folder("A new or empty folder.", "TARGET")],
    to: Annotated[str, Option("--to", help="parquet or webdataset.", show_default=False)],
    split: Annotated[str | None, Option(help="Write only this split.")] = None,
    version: OtherVersion = None,
) -> None:
    """Write a version's rows in another format."""
    check_extra("build", EXPORT)
    from recordmill.pipeline.export.export import ExportError
    from recordmill.pipeline.export.export import export as write

    if "://" in target:
        raise ExportError(f"{target} is a URL: name a local folder, and copy it from there")
    dataset = recordmill.open_dataset(folder, version)
    with _writing(Path(target), "another folder"):
        done = write(dataset, to, Path(target), split)
    print_line(f"{count(done.rows, 'row')} in {count(done.files, 'file')}, {done.bytes:,} bytes: {target}")
    if split in (None, "train"):
        print_line(f"`recordmill init {Path(target) / 'data'}` writes a spec that reads them")
