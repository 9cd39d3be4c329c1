"""The command line: each command reads its arguments, calls one function, and prints the outcome.

Alone among the modules, those of commands, `session` and `build.entry` import inside functions, so that each command
loads only its own packages: `--help` loads neither Beam nor TensorFlow, and `show`, `versions`, `diff`, `pin`, `prune`,
`rollback`, `materialize`, `head` (with Pillow) and `verify` without `--spec` run with NumPy, typer and rich alone.
"""

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from recordmill.pipeline.cli import (
    export_commands,
    gate_commands,
    inspect_commands,
    plan_commands,
    report_commands,
    row_commands,
    sharing_commands,
    spec_commands,
)
from recordmill.pipeline.cli.arguments import DatasetFolder, OtherVersion, VersionFolder
from recordmill.pipeline.cli.extras import BUILD, check_extra
from recordmill.pipeline.cli.screen import print_line, quiet
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.exit_codes import ExitCode, code_of
from recordmill.pipeline.safe_tracebacks import frames_of, summary_of
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
FLINK = "Flink"
WITH_BEAM_OPTIONS = {"allow_extra_args": True}

VersionName = Annotated[
    str, typer.Argument(help="A version's name, its number, or what the name begins or ends with.", show_default=False)
]
SpecFile = Annotated[Path, typer.Argument(help="The dataset's spec: dataset.yaml.", show_default=False)]
Output = Annotated[str, typer.Option("--output", "-o", help="The dataset's folder, or its URL.", show_default=False)]
Runner = Annotated[
    str,
    typer.Option(help="'local', 'flink', 'dataflow', 'prism', or one of Beam's runners; Beam's options come after --."),
]
Attempts = Annotated[
    int, typer.Option(min=1, help="How often a build is tried on a cluster; each attempt goes on with what is kept.")
]


def _flink_option(name: str, metavar: str, help_: str) -> Any:
    """Makes an option of --runner flink, which a variable of the environment may give."""
    variable = f"RECORDMILL_FLINK_{name}"
    return typer.Option(envvar=variable, metavar=metavar, help=help_, rich_help_panel=FLINK, show_default=False)


FlinkMaster = Annotated[
    str, _flink_option("MASTER", "HOST:PORT", "The REST interface of the cluster of --runner flink.")
]
FlinkJar = Annotated[
    str,
    _flink_option(
        "JAR", "JAR", "Beam's job server: a file, or GROUP:ARTIFACT:VERSION; by default what fits the cluster."
    ),
]
FlinkJarSha256 = Annotated[
    str, _flink_option("JAR_SHA256", "HEX", "The jar's digest; by default that of the jar as it was fetched.")
]
FlinkWorkers = Annotated[
    str,
    _flink_option(
        "WORKERS",
        "HOST:PORT|PROGRAM",
        "The pool beside each TaskManager, or the program that it starts; by default recordmill-worker.",
    ),
]
Spans = Annotated[
    list[str] | None,
    typer.Option(
        "--span",
        metavar="NAME",
        help="A span to build, such as 2026-11-20; the others stay as they are in the live version. May be repeated.",
    ),
]
Compact = Annotated[
    bool, typer.Option("--compact", help="Read all spans again, and put them together into few and large shards.")
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="ROWS",
        help="Build a trial version of about so many rows, a sample by the keys' hashes; it is never live.",
    ),
]
Processes = Annotated[
    int, typer.Option(min=1, help="Worker processes of the local runner; one uses every core by threads.")
]
WorkFolder = Annotated[
    str | None,
    typer.Option(help="The local folder of rows on their way, for an output at a URL; by default in your cache."),
]
TempFolder = Annotated[
    str | None,
    typer.Option(
        help="A folder, or a gs:// URL, that TensorFlow opens from every worker: for tf.Transform's analyzers in a "
        "`preprocessing` function on a runner other than local.",
    ),
]
Isolated = Annotated[
    bool,
    typer.Option(
        "--isolated", help="For untrusted images: decode each first in a process that may crash. Costs about twice."
    ),
]
Metrics = Annotated[
    str | None, typer.Option(metavar="FILE", help="Write metrics of the build's end to this file (OpenMetrics).")
]
Notify = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND|URL",
        envvar="RECORDMILL_NOTIFY",
        help="Give the build's end as JSON to a command, on its standard input, or post it to a URL.",
        show_default=False,
    ),
]
UpToDateOk = Annotated[
    bool,
    typer.Option(
        "--up-to-date-ok",
        help="End with 0, not 3, where nothing has changed: for schedulers to which any other status is a failure.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def main() -> None:
    """Runs the command line; a user's mistake is one line on standard error and a non-zero exit."""
    try:
        status = app(standalone_mode=False)
    except TyperException as error:
        if error.format_message():  # empty after the help that no arguments print
            fail(error.format_message(), ExitCode.USAGE)
        sys.exit(ExitCode.USAGE)
    except UserError as error:
        fail(str(error), code_of(error))
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        fail(message or str(error), code_of(error))
    except Exception as error:
        fail(f"failed unexpectedly: {summary_of(error)}\n{frames_of(error)}")
    sys.exit(status or 0)


def fail(message: str, status: int = ExitCode.ERROR) -> None:
    """Prints a message, a line each, and ends the process."""
    say(message.rstrip("\n") or "failed", sys.stderr)
    sys.exit(status)


def check_build_extra() -> None:
    """Ends the process with one line where packages are missing that reading a spec, building or repairing needs."""
    check_extra("build", BUILD)


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
    from recordmill.pipeline.spec.json_schema import EDITOR_LINE, SCHEMA_FILE, write_schema

    files = LocalFiles()
    if "://" in path:
        from recordmill.pipeline.build.beam.filesystem import BeamFiles, use_options
        from recordmill.pipeline.build.beam.runners import make_runner
        from recordmill.pipeline.build.run_options import RunOptions

        use_options(make_runner(RunOptions(beam_options=tuple(context.args))).options)
        files = BeamFiles()
    if output is None:
        text = starter(path, files, name)
        print(printable(text) if sys.stdout.isatty() else text, end="")
    else:
        write_spec(output, lambda: EDITOR_LINE + starter(path, files, name, str(output.parent)), force=force)
        write_schema(output.parent / SCHEMA_FILE)


app.command(context_settings=WITH_BEAM_OPTIONS)(plan_commands.plan)


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
    temp: TempFolder = None,
    isolated: Isolated = False,
    span: Spans = None,
    compact: Compact = False,
    limit: Limit = None,
    attempts: Attempts = 3,
    flink_master: FlinkMaster = "",
    flink_jar: FlinkJar = "",
    flink_jar_sha256: FlinkJarSha256 = "",
    flink_workers: FlinkWorkers = "",
    metrics: Metrics = None,
    notify: Notify = None,
    up_to_date_ok: UpToDateOk = False,
    quietly: Quiet = False,
) -> None:
    """Runs `build` and `retry`, which take the same options."""
    check_build_extra()
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.build.runners.options import FlinkOptions
    from recordmill.pipeline.cli.session import BuildSession

    options = RunOptions(
        runner,
        processes,
        tuple(context.args),
        work=work,
        temp=temp,
        again=context.command.name == "retry",
        isolated=isolated,
        attempts=attempts,
        spans=tuple(span or ()),
        compact=compact,
        limit=limit,
        flink=FlinkOptions(flink_master, flink_jar, flink_jar_sha256, flink_workers),
        metrics=metrics,
        notify=notify,
    )
    BuildSession(output, quietly, up_to_date_ok).run(str(spec), options)


@app.command(context_settings=WITH_BEAM_OPTIONS)
def doctor(
    context: typer.Context,
    runner: Annotated[str, typer.Option(help="'local', or 'flink'.")] = "local",
    flink_master: FlinkMaster = "",
    flink_jar: FlinkJar = "",
    flink_jar_sha256: FlinkJarSha256 = "",
    flink_workers: FlinkWorkers = "",
) -> int:
    """Look at what a build needs: packages, Java, the job server's jar (fetched), the cluster, its workers."""
    check_build_extra()
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.build.runners.doctor import flink_findings, local_findings
    from recordmill.pipeline.build.runners.options import FlinkOptions
    from recordmill.pipeline.cli.screen import print_findings

    flink = FlinkOptions(flink_master, flink_jar, flink_jar_sha256, flink_workers)
    is_well = print_findings(local_findings())
    if runner == "flink":
        with quiet():  # Beam prints while it loads
            from recordmill.pipeline.build.beam.worker_versions import MAVEN_CENTRAL, worker_findings
        is_well &= print_findings(flink_findings(flink, MAVEN_CENTRAL))
        if flink_master and is_well:
            with quiet():
                findings = worker_findings(RunOptions(runner, beam_options=tuple(context.args), flink=flink))
            is_well = print_findings(findings)
    return 0 if is_well else 1


app.command()(inspect_commands.show)
app.command()(inspect_commands.head)
app.command()(export_commands.export)


@app.command()
def versions(dataset: DatasetFolder) -> None:
    """List the versions of a dataset: which is live, pinned, held, and since when others are not live any more."""
    from recordmill.pipeline.cli.versions_table import print_versions
    from recordmill.pipeline.versions.listing import list_versions

    print_versions(dataset, list_versions(dataset))


@app.command()
def diff(
    dataset: DatasetFolder,
    before: Annotated[
        str | None, typer.Argument(metavar="A", help="By default the version before B.", show_default=False)
    ] = None,
    after: Annotated[
        str | None, typer.Argument(metavar="B", help="By default the live version.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Compare the manifests, not the rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what changed from version A to version B: rows, ids, statistics, rejects: `recordmill diff DIR [A] [B]`."""
    from recordmill.pipeline.diff.report import compare
    from recordmill.pipeline.reader.dataset import open_dataset
    from recordmill.pipeline.versions.listing import pair

    old, new = (open_dataset(dataset, manifest.version) for manifest in pair(dataset, before, after))
    report = compare(old, new, rows=not quick)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        for line in report.lines():
            print_line(line)


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


app.command()(gate_commands.approve)
app.command()(gate_commands.reject)


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
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove, whatever their age, all versions that hold forgotten rows.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")] = False,
    work: WorkFolder = None,
) -> None:
    """Remove old versions, and what killed builds left; never a version that is live, pinned or held."""
    from recordmill.pipeline.cli.versions_table import print_pruned, print_wait
    from recordmill.pipeline.versions import prune as pruning
    from recordmill.pipeline.versions.build_folders import building_folder
    from recordmill.pipeline.versions.listing import open_existing

    seconds, building = pruning.seconds_of(grace), building_folder(dataset, work)
    also: Collection[str] = ()
    if purge:
        from recordmill.pipeline.forget import versions_with
        from recordmill.pipeline.versions import forgotten

        also = versions_with(dataset, forgotten.load(open_existing(dataset)))
    done = pruning.prune(dataset, keep, seconds, also=also, dry_run=dry_run, building=building, on_wait=print_wait)
    print_pruned(done, dry_run=dry_run)


app.command()(report_commands.preview)
app.command()(report_commands.report)
app.command()(sharing_commands.materialize)
app.command()(row_commands.forget)
app.command()(spec_commands.schema)


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
