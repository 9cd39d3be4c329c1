"""The command that adopts TFRecord files: `commands` registers it."""

import json
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option
from typer.core import TyperCommand
from typer.exceptions import TyperException

from recordmill.pipeline.cli.screen import Screen, count, print_line
from recordmill.pipeline.errors import ExitCode

if TYPE_CHECKING:
    from rich.progress import Progress

    from recordmill.pipeline.adopt.adopt import Adopted

SPLIT = "--split"
MOST_SHOWN = 20  # classes on the screen


class AdoptCommand(TyperCommand):
    """A command in which `--split NAME` names the files before it, or, as the first argument, those after it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments, and notes each file's split. Raises: TyperException: files without a split."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        files = list(ctx.params.get("files") or ())
        splits = [split for split in ctx.params.get("split") or () if "=" not in split]
        ctx.meta["splits"] = _splits(given, files, splits)
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
    if waiting:
        raise TyperException(
            f"{waiting[0]} comes after the last {SPLIT}: files come before the {SPLIT} that names them"
        )
    return of_split


def _shares(splits: list[str] | None) -> dict[str, float]:
    shares = dict[str, float]()
    for split in splits or ():
        name, mark, share = split.partition("=")
        if mark:
            try:
                shares[name] = float(share)
            except ValueError:
                raise TyperException(f"{SPLIT} {split}: a share is a number, as in train=90") from None
    return shares


def adopt(
    context: Context,
    files: Annotated[list[str], Argument(help="TFRecord files, quoted globs, folders or URLs.", show_default=False)],
    output: Annotated[str, Option("--output", "-o", help="The dataset's folder, or its URL.", show_default=False)],
    split: Annotated[
        list[str] | None,
        Option(SPLIT, metavar="NAME[=SHARE]", help="The split of the files before; or a share, by the keys' hashes."),
    ] = None,
    spec: Annotated[
        str | None, Option(help="A file with `features`, as this command prints them; by default they are found.")
    ] = None,
    label: Annotated[str | None, Option(help="The feature to predict; by default found.")] = None,
    key: Annotated[str | None, Option(help="The records' feature with the key; by default file and number.")] = None,
    name: Annotated[str | None, Option(help="The dataset's name; by default of the output.")] = None,
    quietly: Annotated[bool, Option("--quiet", "-q", help="Print only errors.")] = False,
) -> int:
    """Read TFRecord files in place: `recordmill adopt 'old/train-*' --split train -o DIR`."""
    from recordmill.pipeline.adopt.adopt import adopt
    from recordmill.pipeline.adopt.files import Adoption
    from recordmill.pipeline.adopt.stated import read_features

    console = Screen(stderr=True, quiet=quietly)
    features = None if spec is None else read_features(spec)
    adoption = Adoption(context.meta["splits"], output, features, label, key, _shares(split), name)
    with _progress(console) as bar:
        task = bar.add_task("reading", total=None)

        def on_plan(size: int) -> Any:
            bar.update(task, total=size)
            return lambda read: bar.advance(task, read)

        done = adopt(adoption, lambda holder: console.print(f"waiting for {holder}, which works in {output}"), on_plan)
    if not quietly:
        _print(done)
    return ExitCode.GATE if done.is_held_back else ExitCode.PUBLISHED if done.is_new else ExitCode.UP_TO_DATE


def _progress(console: Screen) -> "Progress":
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TimeRemainingColumn()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal or console.quiet)


def _short(words: dict[str, Any], file: str) -> dict[str, Any]:
    """Names the file of many classes instead of them."""
    if len(words.get("classes", ())) <= MOST_SHOWN:
        return words
    return {option: value for option, value in words.items() if option != "classes"} | {"classes_file": file}


def _print(done: "Adopted") -> None:
    manifest, read = done.manifest, done.manifest.rows.get("read", 0)
    if not done.is_new:
        print_line(f"Nothing has changed since version {manifest.version}, which is live in {done.folder}")
        return
    print_line(f"Adopted {manifest.name} {manifest.version}: {count(read, 'record')}, read in place")
    for name, split in manifest.splits.items():
        print_line(f"  {name:<12} {split.records:>10,} records in {count(len(split.shards), 'file')}")
    for reason, rejected in manifest.rejects.get("by_reason", {}).items():
        print_line(f"  {reason:<12} {rejected:>10,} records left out")
    for note in done.notes:
        print_line(f"  {note}")
    print_line("The records are read as this says; to change it, edit it in a file, given by --spec:\nfeatures:")
    for name, words in manifest.spec["features"].items():
        print_line(f"  {name}: {json.dumps(_short(words, f'{done.folder}/vocabularies/{name}.vocabulary.txt'))}")
    if done.is_held_back:
        print_line(f"{manifest.version} is held back: a version of the same files was rolled back")
    print_line(f"  in {done.folder}")
