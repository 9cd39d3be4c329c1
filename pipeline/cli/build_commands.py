"""The commands that make specs and versions: init, plan, build, adopt, doctor, schema; `commands` registers them."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Context, Option
from typer.core import TyperCommand
from typer.exceptions import TyperException

import recordmill
from recordmill.pipeline.cli.arguments import AsJson, WorkFolder, named, to_folder, to_output
from recordmill.pipeline.cli.extras import check_extra
from recordmill.pipeline.cli.screen import Screen, print_json, print_line, quiet
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import printable

if TYPE_CHECKING:
    from recordmill.pipeline.build.runners.doctor import SystemCheck

FLINK, SPLIT = "Flink", "--split"
MOST_SHOWN = 20  # classes on the screen

SpecFile = Annotated[Path, Argument(help="The dataset's spec: dataset.yaml.", show_default=False)]
Output = Annotated[str, to_output("The dataset's folder, or its URL.")]
RUNNER_HELP = "'local', 'flink', 'dataflow', or a class of Beam such as PrismRunner; Beam's options come after --."


def _flink_option(name: str, metavar: str, help_: str) -> Any:
    """Makes an option for --runner flink, also set by an environment variable."""
    variable = f"RECORDMILL_FLINK_{name}"
    return Option(envvar=variable, metavar=metavar, help=help_, rich_help_panel=FLINK, show_default=False)


FlinkMaster = Annotated[str, _flink_option("MASTER", "HOST:PORT", "The cluster's REST interface for --runner flink.")]
JAR_HELP = "The file of Beam's job server for the cluster's Flink; without it, the command says which."
FlinkJar = Annotated[str, _flink_option("JAR", "FILE", JAR_HELP)]
FlinkJarSha256 = Annotated[str, _flink_option("JAR_SHA256", "HEX", "The jar's required digest.")]
WORKERS_HELP = "The pool next to each TaskManager, or the program to start; by default recordmill-worker."
FlinkWorkers = Annotated[str, _flink_option("WORKERS", "HOST:PORT|PROGRAM", WORKERS_HELP)]
SPAN_HELP = "A span to build, such as 2026-11-20; the live version's other spans stay. May be repeated."
Compact = Annotated[bool, Option("--compact", help="Reread all spans, and merge them into few, large shards.")]
LIMIT_HELP = "Build about this many rows, sampled by the keys' hashes, into an output of their own."
Processes = Annotated[
    int | None, Option(min=1, help="The local runner's worker processes; by default by cores, memory and the work.")
]
TEMP_HELP = (
    "A folder, or a gs:// URL, that TensorFlow opens on every worker: for tf.Transform's analyzers in a "
    "`preprocessing` function on a runner other than local."
)
ISOLATED_HELP = "For untrusted images: first decode each in a process that may crash. Takes about twice the time."
METRICS_HELP = "Write metrics of the build's end to this file (OpenMetrics)."
Metrics = Annotated[str | None, Option(metavar="FILE", help=METRICS_HELP, callback=named)]
SPLIT_HELP = "The split of the files before; or a share, by the keys' hashes."
FEATURES_HELP = "A file with `features`, as this command prints them; by default they are found."
UP_TO_DATE_HELP = "Exit with 0, not 3, if nothing has changed, for schedulers that take other codes for failures."
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print only errors.")]


def init(
    context: Context,
    path: Annotated[str, to_folder("A folder, a file or a glob, local or a URL.")],
    name: Annotated[str | None, Option(help="The dataset's name; by default of the path.")] = None,
    output: Annotated[Path | None, to_output("A file to write, such as dataset.yaml; by default the screen.")] = None,
    force: Annotated[bool, Option("--force", help="Overwrite the file of --output.")] = False,
    order: Annotated[
        Literal["corners", "coco", "center", "tensorflow"] | None,
        Option(help="The order of boxes' numbers, if several fit.", show_default=False),
    ] = None,
    encoding: Annotated[str | None, Option(help="The encoding of text files; by default detected.")] = None,
) -> None:
    """Look at data and print a starter dataset.yaml, with reasons: `recordmill init PATH [-- BEAM OPTIONS]`."""
    check_extra()
    from recordmill.pipeline.build.build import source_files
    from recordmill.pipeline.forecast.forecast import forecast, reject_lines
    from recordmill.pipeline.init.boxes import Answers
    from recordmill.pipeline.init.starter import first_lines, starter, write_spec
    from recordmill.pipeline.spec.model import EDITOR_LINE, SCHEMA_FILE, load_spec, write_schema

    files = source_files(context.args)
    answers = Answers(order, encoding, _ask if sys.stdin.isatty() and sys.stderr.isatty() else None)
    if output is None:
        text = starter(path, files, name, answers=answers)
        print(printable(text) if sys.stdout.isatty() else text, end="")
    else:
        made = lambda: starter(path, files, name, str(output.parent), answers)  # noqa: E731
        text = write_spec(output, made, EDITOR_LINE, force=force)
        write_schema(output.parent / SCHEMA_FILE)
        print_line(first_lines(text)[1])
    try:
        with quiet():
            rejects = list(reject_lines(forecast(load_spec(str(output or "dataset.yaml"), text), files)))
    except UserError as error:
        rejects = [f"WARNING: a build would end: {error}"]
    for line in (*first_lines(text)[0], *rejects):
        print(printable(line), file=sys.stderr)


def _ask(question: str, answers: Sequence[str]) -> str:
    """Asks at the terminal until it gets one of the answers. Raises: UserError: end of input."""
    while True:
        print(printable(f"{question}\n{' / '.join(answers)}: "), end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if line.strip() in answers:
            return line.strip()
        if not line:
            raise UserError("no answer: give it by an option")


def plan(
    context: Context,
    spec: SpecFile,
    output: Annotated[str | None, to_output("The dataset's folder or URL, to compare with its live version.")] = None,
    as_json: AsJson = False,
) -> int:
    """Say what a build would read, reject and write, and warn: `recordmill plan dataset.yaml [-- BEAM OPTIONS]`."""
    check_extra()
    from recordmill.pipeline.build.build import source_files
    from recordmill.pipeline.build.inputs.span_sources import left_out
    from recordmill.pipeline.dataset.manifest import Manifest
    from recordmill.pipeline.forecast.forecast import forecast

    parsed, options = recordmill.load_spec(str(spec)), recordmill.RunOptions(beam_options=tuple(context.args))
    files = source_files(context.args)
    with quiet():
        result = forecast(parsed, files, output, options)
    if isinstance(result, Manifest):
        notes = left_out(parsed, files)
        said = f"nothing has changed since {result.version} was built: a build would end at once"
        if as_json:
            print_json({"unchanged_since": result.version, "notes": notes})
        else:
            print_line("\n".join([said, *(f"note: {line}" for line in notes)]))
        return 0
    if as_json:
        print_json(result.to_json())
    else:
        print_line(str(result))
    return result.exit_code


def build(
    context: Context,
    spec: SpecFile,
    output: Output,
    runner: Annotated[str, Option(help=RUNNER_HELP)] = "local",
    processes: Processes = None,
    work: WorkFolder = None,
    temp: Annotated[str | None, Option(help=TEMP_HELP)] = None,
    isolated: Annotated[bool, Option("--isolated", help=ISOLATED_HELP)] = False,
    again: Annotated[bool, Option("--again", help="Reread all content; publish if it or the rejects changed.")] = False,
    span: Annotated[list[str] | None, Option("--span", metavar="NAME", help=SPAN_HELP)] = None,
    compact: Compact = False,
    limit: Annotated[int | None, Option(min=1, metavar="ROWS", help=LIMIT_HELP)] = None,
    attempts: Annotated[int, Option(min=1, help="The attempts on a cluster; each continues the last one's work.")] = 3,
    flink_master: FlinkMaster = "",
    flink_jar: FlinkJar = "",
    flink_jar_sha256: FlinkJarSha256 = "",
    flink_workers: FlinkWorkers = "",
    metrics: Metrics = None,
    up_to_date_ok: Annotated[bool, Option("--up-to-date-ok", help=UP_TO_DATE_HELP)] = False,
    quietly: Quiet = False,
) -> None:
    """Build a dataset and publish it: `recordmill build dataset.yaml --output DIR [-- BEAM OPTIONS]`."""
    check_extra()
    from recordmill.pipeline.build.runners.flink_cluster import FlinkOptions
    from recordmill.pipeline.cli.session import BuildSession

    options = recordmill.RunOptions(
        runner,
        processes,
        tuple(context.args),
        work=work,
        temp=temp,
        again=again,
        isolated=isolated,
        attempts=attempts,
        spans=tuple(span or ()),
        compact=compact,
        limit=limit,
        flink=FlinkOptions(flink_master, flink_jar, flink_jar_sha256, flink_workers),
        metrics=metrics,
    )
    BuildSession(output, quietly, up_to_date_ok).run(str(spec), options)


class AdoptCommand(TyperCommand):
    """A command in which `--split NAME` names the files before it, or, as the first argument, those after it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments, and notes files by split, and shares. Raises: TyperException: files without a split."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        files, splits = list(ctx.params.get("files") or ()), ctx.params.get("split") or ()
        try:
            shares = {name: float(share) for name, mark, share in (split.partition("=") for split in splits) if mark}
        except ValueError as error:
            raise TyperException(f"{SPLIT}: {error}: a share is a number, as in train=90") from None
        ctx.meta.update(splits=_splits(given, files, [split for split in splits if "=" not in split]), shares=shares)
        return rest


def _splits(given: list[str], files: list[str], splits: list[str]) -> dict[str, list[str]]:
    """Returns files by split, by their places among the arguments; under "" without splits."""
    if not splits:
        return {"": files}
    of_split, waiting, names, left = dict[str, list[str]](), list[str](), iter(splits), iter(files)
    comes_first, current, file = given[0].startswith(SPLIT), "", next(left, None)
    for argument, after in zip(given, [*given[1:], ""], strict=True):
        value = after if argument == SPLIT else argument.removeprefix(f"{SPLIT}=") if argument.startswith(SPLIT) else ""
        if value and "=" not in value:
            current = next(names)
            if not comes_first:
                of_split.setdefault(current, []).extend(waiting)
                waiting = []
        elif argument == file:
            (of_split.setdefault(current, []) if comes_first else waiting).append(argument)
            file = next(left, None)
    last = [f"{file} comes after the last {SPLIT}" for file in waiting]
    if wrong := last or [f"{SPLIT} {name} has no files" for name in splits if not of_split.get(name)]:
        raise TyperException(f"{wrong[0]}: files come before the {SPLIT} that names them")
    return of_split


def adopt(
    context: Context,
    files: Annotated[list[str], to_folder("TFRecord files, quoted globs, folders or URLs.")],
    output: Output,
    split: Annotated[list[str] | None, Option(SPLIT, metavar="NAME[=SHARE]", help=SPLIT_HELP)] = None,
    spec: Annotated[str | None, Option(help=FEATURES_HELP)] = None,
    label: Annotated[str | None, Option(help="The feature to predict; by default found.")] = None,
    key: Annotated[str | None, Option(help="The records' feature with the key; by default file and number.")] = None,
    name: Annotated[str | None, Option(help="The dataset's name; by default of the output.")] = None,
    max_share: Annotated[float, Option(min=0, max=1, help="The share of records that may be left out.")] = 0.01,
    metrics: Metrics = None,
    quietly: Quiet = False,
) -> int:
    """Read TFRecord files in place: `recordmill adopt 'old/train-*' --split train -o DIR`."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from recordmill.pipeline.adopt.adopt import adopt_files, read_features
    from recordmill.pipeline.adopt.files import Adoption
    from recordmill.pipeline.build.journal import measured, of_version
    from recordmill.pipeline.cli.show import print_published
    from recordmill.pipeline.versions.publishing import GateBreachedError

    console, began = Screen(stderr=True, quiet=quietly), time.monotonic()
    features = None if spec is None else read_features(spec)
    adoption = Adoption(context.meta["splits"], output, features, label, key, context.meta["shares"], name, max_share)
    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TimeRemainingColumn()
    is_hidden = not console.is_terminal or console.quiet
    bar = Progress(*columns, console=console, transient=True, disable=is_hidden)
    with measured(metrics, output, adoption.dataset) as entry, bar:
        task = bar.add_task("reading", total=None)

        def on_plan(size: int) -> Any:
            bar.update(task, total=size)
            return lambda read: bar.advance(task, read)

        waits = lambda holder: console.print(f"waiting for {holder}, which works in {output}")  # noqa: E731
        done = adopt_files(adoption, waits, on_plan)
        entry |= {"exit_code": int(done.exit_code), **of_version(done)}
    if done.breaches:
        raise GateBreachedError(done.reason(output), done)
    if not quietly:
        lines = ["The records are read as this says; to change it, edit it in a file, given by --spec:\nfeatures:"]
        for feature, words in done.manifest.spec["features"].items():
            if len(words.get("classes", ())) > MOST_SHOWN:
                file = f"{done.folder}/vocabularies/{feature}.vocabulary.txt"
                words = {of: value for of, value in words.items() if of != "classes"} | {"classes_file": file}
            lines.append(f"  {feature}: {json.dumps(words)}")
        print_published(Screen(), done, time.monotonic() - began, lines)
    return done.exit_code


def doctor(
    context: Context,
    runner: Annotated[Literal["local", "flink"], Option(help="'local', or 'flink'.")] = "local",
    flink_master: FlinkMaster = "",
    flink_jar: FlinkJar = "",
    flink_jar_sha256: FlinkJarSha256 = "",
    flink_workers: FlinkWorkers = "",
) -> int:
    """Check what a build needs: packages, Java, the job server's jar, the cluster, its workers."""
    check_extra()
    from recordmill.pipeline.build.runners.doctor import flink_findings, local_findings
    from recordmill.pipeline.build.runners.flink_cluster import FlinkOptions

    flink = FlinkOptions(flink_master, flink_jar, flink_jar_sha256, flink_workers)
    is_well = _print_findings(local_findings())
    if runner == "flink":
        is_well &= _print_findings(flink_findings(flink))
        if flink_master and is_well:
            with quiet():  # Beam prints while it loads
                from recordmill.pipeline.build.beam.runners import worker_findings

                findings = worker_findings(recordmill.RunOptions(runner, beam_options=tuple(context.args), flink=flink))
            is_well = _print_findings(findings)
    return 0 if is_well else 1


def _print_findings(findings: Iterable["SystemCheck"]) -> bool:
    is_well = True
    for finding in findings:
        print_line(f"{'ok' if finding.is_ok else 'FAIL':<5} {finding.name:<10} {finding.text}")
        is_well &= finding.is_ok
    return is_well


def schema(output: Annotated[Path | None, to_output("A file to write; by default the screen.")] = None) -> None:
    """Print the JSON Schema of dataset.yaml, for editors."""
    check_extra()
    from recordmill.pipeline.spec.model import schema_text, write_schema

    if output is None:
        print(schema_text(), end="")
    else:
        write_schema(output)
