"""The command line: each command reads its arguments, calls one function, and prints the outcome.

Alone among the modules, this one, `session` and `build.entry` import inside functions, so that each command loads only
its own packages: `--help` loads neither Beam nor TensorFlow, and `show`, `versions`, `pin`, `prune`, `rollback` and
`verify` without `--spec` run with NumPy, typer and rich alone.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.exceptions import TyperException

from recordmill.pipeline.cli.extras import BUILD, missing
from recordmill.pipeline.cli.safe_tracebacks import frames_of, summary_of
from recordmill.pipeline.cli.screen import print_line, quiet
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, read_latest, read_manifest, version_folder
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.terminal_text import printable, say
from recordmill.pipeline.version import VERSION

if TYPE_CHECKING:
    from recordmill.pipeline.spec.model import Spec

app = typer.Typer(
    name="recordmill",
    help="Raw data in; a versioned, training-ready TFRecord dataset out.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
WITH_BEAM_OPTIONS = {"allow_extra_args": True}

DatasetFolder = Annotated[
    str, typer.Argument(metavar="DIR", help="The dataset's folder, or its URL.", show_default=False)
]
VersionFolder = Annotated[
    str, typer.Argument(help="The dataset's folder, or a version's; or its URL.", show_default=False)
]
VersionName = Annotated[
    str, typer.Argument(help="A version's name, its number, or what the name begins or ends with.", show_default=False)
]
OtherVersion = Annotated[
    str | None, typer.Option("--version", help="A version other than the live one: its name, its number, or a part.")
]
SpecFile = Annotated[Path, typer.Argument(help="The dataset's spec: dataset.yaml.", show_default=False)]
Output = Annotated[str, typer.Option("--output", "-o", help="The dataset's folder, or its URL.", show_default=False)]
Runner = Annotated[
    str, typer.Option(help="'local', or one of Beam's runners, such as PortableRunner; its options come after --.")
]
Processes = Annotated[
    int, typer.Option(min=1, help="Worker processes of the local runner; one uses every core by threads.")
]
WorkFolder = Annotated[
    str | None,
    typer.Option(help="The local folder of unfinished builds for an output at a URL; by default in your cache."),
]
Isolated = Annotated[
    bool,
    typer.Option(
        "--isolated", help="For untrusted images: decode each first in a process that may crash. Costs about twice."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def main() -> None:
    """Runs the command line; a user's mistake is one line on standard error and a non-zero exit."""
    try:
        status = app(standalone_mode=False)
    except TyperException as error:
        if error.format_message():  # empty after the help that no arguments print
            fail(error.format_message(), 2)
        sys.exit(2)
    except UserError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    except Exception as error:
        fail(f"failed unexpectedly: {summary_of(error)}\n{frames_of(error)}")
    sys.exit(status or 0)


def fail(message: str, status: int = 1) -> None:
    """Prints a message, a line each, and ends the process."""
    say(message.rstrip("\n") or "failed", sys.stderr)
    sys.exit(status)


def check_build_extra() -> None:
    """Ends the process with one line where packages are missing that reading a spec, building or repairing needs."""
    if names := missing(BUILD):
        fail(f'this command needs an extra: pip install "recordmill[build]" (missing: {", ".join(names)})', 2)


def read_spec(file: Path) -> "Spec":
    """Reads a spec, where the packages for it are installed."""
    check_build_extra()
    from recordmill.pipeline.spec.model import load_spec

    return load_spec(str(file))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"recordmill {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Raw data in; a versioned, training-ready TFRecord dataset out."""


@app.command(context_settings=WITH_BEAM_OPTIONS)
def init(
    context: typer.Context,
    path: Annotated[str, typer.Argument(help="A folder, a file or a glob, local or a URL.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="The dataset's name; by default of the path.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A file to write, such as dataset.yaml; by default the screen."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the file of --output.")] = False,
) -> None:
    """Look at data and print a starter dataset.yaml, with reasons: `recordmill init PATH [-- BEAM OPTIONS]`."""
    check_build_extra()
    from recordmill.pipeline.init.starter import starter, write_spec
    from recordmill.pipeline.sources.local_files import LocalFiles

    files = LocalFiles()
    if "://" in path:
        from recordmill.pipeline.build.beam.filesystem import BeamFiles, use_options
        from recordmill.pipeline.build.beam.runners import make_runner

        use_options(make_runner("local", 1, context.args).options)
        files = BeamFiles()
    if output is None:
        text = starter(path, files, name)
        print(printable(text) if sys.stdout.isatty() else text, end="")
    else:
        write_spec(output, lambda: starter(path, files, name, str(output.parent)), force=force)


@app.command(
    "retry",
    context_settings=WITH_BEAM_OPTIONS,
    help="Build again, and publish if other rows are rejected than before; takes the options of `build`.",
)
@app.command(
    "build",
    context_settings=WITH_BEAM_OPTIONS,
    help="Build a dataset and publish it: `recordmill build dataset.yaml --output DIR [-- BEAM OPTIONS]`.",
)
def build(
    context: typer.Context,
    spec: SpecFile,
    output: Output,
    runner: Runner = "local",
    processes: Processes = 1,
    work: WorkFolder = None,
    isolated: Isolated = False,
    quietly: Quiet = False,
) -> None:
    """Runs `build` and `retry`, which take the same options."""
    parsed, again = read_spec(spec), context.command.name == "retry"
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.cli.session import BuildSession

    options = RunOptions(runner, processes, tuple(context.args), work=work, again=again, isolated=isolated)
    BuildSession(output, quietly).run(parsed, options)


@app.command()
def show(folder: VersionFolder, version: OtherVersion = None) -> None:
    """Show a dataset: its versions, splits, features, statistics and rejects."""
    from recordmill.pipeline.cli.show import print_dataset
    from recordmill.pipeline.versions.listing import find, list_versions
    from recordmill.pipeline.versions.stores.open_store import open_location

    location = open_location(folder)
    if (location / MANIFEST_FILE).is_file():
        if version is not None:
            raise DatasetError(f"{folder} is a version already: leave out --version, or name the dataset's folder")
        print_dataset(read_manifest(location), location, versions=[])
        return
    live = read_latest(location).version
    chosen = version_folder(location, find(folder, version).version if version else live)
    print_dataset(read_manifest(chosen), chosen, list_versions(folder))


@app.command()
def versions(dataset: DatasetFolder) -> None:
    """List the versions of a dataset: which is live, pinned, held, and since when others are not live any more."""
    from recordmill.pipeline.cli.versions_table import print_versions
    from recordmill.pipeline.versions.listing import list_versions

    print_versions(dataset, list_versions(dataset))


@app.command()
def rollback(
    dataset: DatasetFolder,
    version: Annotated[
        str | None, typer.Argument(help="By default the one published before the live one.", show_default=False)
    ] = None,
) -> None:
    """Make an earlier version live again: `recordmill rollback DIR [VERSION]`."""
    from recordmill.pipeline.cli.versions_table import print_rollback
    from recordmill.pipeline.versions import listing

    print_rollback(dataset, *listing.rollback(dataset, version))


@app.command()
def pin(dataset: DatasetFolder, version: VersionName) -> None:
    """Keep a version from being pruned."""
    from recordmill.pipeline.versions import listing

    print_line(f"{listing.pin(dataset, version).version} is pinned: `recordmill prune` keeps it")


@app.command()
def unpin(dataset: DatasetFolder, version: VersionName) -> None:
    """Let a version be pruned again."""
    from recordmill.pipeline.versions import listing

    manifest, was_pinned = listing.unpin(dataset, version)
    now = "is not pinned any more: `recordmill prune` may remove it"
    print_line(f"{manifest.version} {now if was_pinned else 'was not pinned: nothing has changed'}")


@app.command()
def prune(
    dataset: DatasetFolder,
    keep: Annotated[
        int | None, typer.Option(min=1, help="How many of the newest versions stay.", show_default="all")
    ] = None,
    grace: Annotated[
        str, typer.Option(help="How long a version stays that is not live any more: 30m, 12h, 1d, 0.")
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    work: WorkFolder = None,
) -> None:
    """Remove old versions, and what killed builds left; never a version that is live, pinned or held."""
    from recordmill.pipeline.cli.versions_table import print_pruned, print_wait
    from recordmill.pipeline.versions import prune as pruning
    from recordmill.pipeline.versions.build_folders import building_folder

    seconds, building = pruning.seconds_of(grace), building_folder(dataset, work)
    done = pruning.prune(dataset, keep, seconds, dry_run=dry_run, building=building, on_wait=print_wait)
    print_pruned(done, dry_run=dry_run)


@app.command()
def verify(
    folder: VersionFolder,
    version: OtherVersion = None,
    spec: Annotated[Path | None, typer.Option(help="dataset.yaml: raw rows are served and compared, too.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Make damaged shards (by --spec) and indexes anew.")] = False,
    sample: Annotated[int, typer.Option(min=0, help="How many raw rows are compared.")] = 64,
    quick: Annotated[bool, typer.Option("--quick", help="Compare sizes and digests alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Check a published version, file by file and record by record: `recordmill verify DIR`."""
    from recordmill.pipeline.redaction import redacted
    from recordmill.pipeline.verify.verify import NO_PARITY
    from recordmill.pipeline.verify.verify import verify as check

    if "://" in folder and (repair or spec is not None):
        raise DatasetError(f"{folder} is a URL: --spec and --repair are for a version in a folder of this machine")
    if repair:
        check_build_extra()
    parsed = None if spec is None else read_spec(spec)
    report = check(folder, version, quick=quick)
    if repair or parsed is not None:
        with quiet():  # Beam and TensorFlow print, while they load too
            from recordmill.pipeline.verify.with_sources import with_sources

            report = with_sources(report, parsed, rows=sample, mend=repair)
    if spec is None:
        report.findings.unchecked.append(NO_PARITY)
    print(json.dumps(report.to_json(), indent=2) if as_json else printable(redacted("\n".join(report.lines()))))
    return 0 if report.is_whole else 1


@app.command()
def schema() -> None:
    """Print the JSON Schema of dataset.yaml, for editors."""
    check_build_extra()
    from recordmill.pipeline.spec.model import Spec

    print(json.dumps(Spec.model_json_schema(), indent=2))
