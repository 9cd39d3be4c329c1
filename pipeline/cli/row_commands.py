"""The commands on single rows; `commands` registers them."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recordmill.pipeline.cli.arguments import DatasetFolder
from recordmill.pipeline.cli.screen import count, print_line
from recordmill.pipeline.cli.source_files import files_of
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import printable

if TYPE_CHECKING:
    from recordmill.pipeline.dataset.manifest import Location, Manifest
    from recordmill.pipeline.forget import Forgot
    from recordmill.pipeline.rows import StoredRow

SHOWN = 5
MAY_HOLD = "may hold forgotten rows, since its dataset.json cannot be read: restore that file, or remove the folder"

Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        help="The rows' keys; without any, what is on the list is taken out of the live version.",
        show_default=False,
    ),
]
KeysFile = Annotated[Path | None, typer.Option("--keys", metavar="FILE", help="A file of keys, one a line.")]


def forget(dataset: DatasetFolder, keys: Keys = None, file: KeysFile = None) -> None:
    """Publish the live version without some rows; later builds leave them out, too."""
    from recordmill.pipeline import forget as forgetting

    given = [key.encode("utf-8", "surrogateescape") for key in keys or ()]
    given += [line for line in file.read_bytes().splitlines() if line] if file else []
    _print_forgot(dataset, forgetting.forget(dataset, given))


def _print_forgot(dataset: str, done: "Forgot") -> None:
    version = done.manifest.version
    if done.is_new:
        rejects = f", and {count(done.rejects, 'rejected row')}" if done.rejects else ""
        print_line(f"{version} is live now, without {count(done.rows, 'record')} of forgotten rows{rejects}")
    else:
        print_line(f"{version} is live, and holds no forgotten row")
    if done.unknown:
        several = f"{count(len(done.unknown), 'key')} of no row in the version before: {_shown(done.unknown)}"
        print_line(f"{several}; later builds leave such rows out all the same")
    for held, rows in done.held_by.items():
        print_line(f"{held} still holds {'perhaps some' if rows < 0 else count(rows, 'record')} of forgotten rows")
    if done.held_by:
        print_line(f"`recordmill versions prune {dataset} --purge` removes these versions")
    for version in done.broken:
        print_line(f"{version} {MAY_HOLD}")


def _shown(keys: Iterable[bytes]) -> str:
    shown = [printable(key.decode("utf-8", "replace")) for key in keys]
    return ", ".join(shown[:SHOWN]) + (", …" if len(shown) > SHOWN else "")


def show_record(folder: "Location", key: str, output: str | None, spec: Path | None = None) -> None:
    """Prints where a version holds the record of a key, and its file and line in the sources; or why it holds none.

    Args:
        folder: the version's.
        key: the row's.
        output: the dataset's output; None where the version's own folder was given.
        spec: the dataset's, to read its sources; a version keeps neither their folders nor the lines of its rows.

    Raises:
        DatasetError: there is no record, and nothing says why; or a shard is damaged.
    """
    from recordmill.pipeline.rows import find_records, is_sorted

    manifest = read_manifest(folder)
    if not is_sorted(manifest):
        raise DatasetError(f"the records of {manifest.version} hold several rows each, and are not found by a key")
    rows = find_records(folder, manifest, key.encode("utf-8", "surrogateescape"))
    for row in rows:
        span = f", span {row.shard.span}" if row.shard.span else ""
        where = f", in the folder of the version {row.shard.version}" if row.shard.version else ""
        print_line(f"{printable(key)}: split {row.split}, position {row.position:,}{span}")
        print_line(
            f"  record {row.record:,} of {row.shard.file}, at byte {row.offset:,}, {len(row.data):,} bytes{where}"
        )
    sources = ", ".join(f"{source.get('format', '')} {source.get('path', '')}".strip() for source in manifest.sources)
    if rows and spec is None:
        print_line(f"  from {printable(sources)}; --spec dataset.yaml reads the sources, and finds the file and line")
    elif rows and spec is not None:
        _print_origins(folder, manifest, rows, key, spec)
    if rows:
        return
    rejects = list(_rejects_of(folder, manifest, key))
    for reject in rejects:
        line = "" if reject.get("line") is None else f", line {reject['line']}"
        place = f"{reject.get('code')}: {reject.get('file')}{line}"
        print_line(f"{printable(key)}: rejected, {printable(place)}")
    since = None if output is None else _forgotten_since(output, key)
    if since:
        print_line(f"{printable(key)}: forgotten since {since}")
    elif not rejects:
        raise DatasetError(f"{manifest.version} has no record of the key '{printable(key)}'")


def _print_origins(folder: "Location", manifest: "Manifest", rows: Sequence["StoredRow"], key: str, spec: Path) -> None:
    from recordmill.pipeline.cli.extras import SOURCES, check_extra

    check_extra("build", SOURCES)
    from recordmill.pipeline.build.row_origins import find_origins
    from recordmill.pipeline.spec.model import load_spec

    loaded, given = load_spec(str(spec)), key.encode("utf-8", "surrogateescape")
    origins = list(find_origins(loaded, folder, manifest, rows, given, files_of(loaded)))
    for origin in origins:
        print_line(f"  from {printable(str(origin))}")
    if not origins:
        print_line(f"  the sources of {spec} hold no row of this key any more")


def _rejects_of(folder: "Location", manifest: "Manifest", key: str) -> Iterator[dict[str, object]]:
    from recordmill.pipeline.rows import read_reject_lines

    for file in manifest.rejects.get("files", []):
        for _, reject in read_reject_lines(folder, file["file"]):
            if reject.get("id") == key:
                yield reject


def _forgotten_since(output: str, key: str) -> str | None:
    from recordmill.pipeline.dataset.placement import digest
    from recordmill.pipeline.versions import forgotten
    from recordmill.pipeline.versions.stores.open_store import open_store

    return forgotten.load(open_store(output)).keys.get(digest(key.encode("utf-8", "surrogateescape")).hex())
