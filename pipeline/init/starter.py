"""From a path to the text of a `dataset.yaml` that builds as it is: guessed, written, read back and tried."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.choose import Draft, make_draft, valid_name
from recordmill.pipeline.init.guess import Choice, Guess
from recordmill.pipeline.init.images import images_folder
from recordmill.pipeline.init.recognize import Recognized, UnknownDataError, counted, recognize
from recordmill.pipeline.init.sample import SourceSample, count_rows, in_words
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.globs import escape, is_glob
from recordmill.pipeline.sources.options import PATHS
from recordmill.pipeline.sources.paths import is_utf8
from recordmill.pipeline.spec.model import Name, Spec, parse_spec
from recordmill.pipeline.spec.yaml_document import STRING

COMMENTS = 46  # the column of the comments; behind a longer line its comment follows at once
LONG = 120  # a longer line has its comment above it
SHOWN = 400  # characters of a comment
Rejects = Counter[tuple[str, str]]
"""Numbers of rows by reason and column."""
ENCODING = "`encoding: NAME`, such as cp1252, in the source reads text that is not UTF-8."
GENERIC = {"data", "dataset", "files", "images", "imgs", "rows", "shards", "train"}
"""The names of folders and files that say nothing of the data: the folder above says more."""
RELATIVE = "Paths are relative to the folder of this file: keep it where `init` ran, or write it with `--output FILE`."
BEGINNINGS = "Of large files the first rows were read: where rows are sorted, the others may be different."


def starter(path: str, files: Files, name: str | None = None, folder: str | None = None) -> str:
    """Writes a starter spec for the data at a path.

    Args:
        path: a folder, a file or a glob, local or a URL.
        files: opens it.
        name: the dataset's name; without one it comes from the path.
        folder: the folder of the spec, which its paths are relative to; the working folder where it is not known.

    Raises:
        UserError: no source reads what is there, or the name cannot be one; the message says what to do.
        OSError: it cannot be read.
    """
    whole = _absolute(path)
    name = dataset_name(whole) if name is None else _checked(name)
    written = partial(written_path, folder=os.path.abspath(folder or "."), keep=os.path.isabs(path))
    sample = SourceSample(files, recognize(files, whole))
    folder_of_images = images_folder(sample, files)
    if folder_of_images:
        sample = SourceSample(files, sample.data.with_images(folder_of_images))
    draft = make_draft(sample)
    tried = parse_spec(write_draft(draft.answered(), name, lambda path: path))
    lines, limit = try_spec(tried, draft.features.values(), sample)
    notes = [f"Guesses by `recordmill init` for {path}; each with its reason.", *lines]
    if not sample.files.is_whole:
        notes.append(BEGINNINGS)
    if folder is None and "://" not in whole and not os.path.isabs(written(whole)):
        notes.append(RELATIVE)
    return write_draft(draft, name, written, notes, limit)


def dataset_name(path: str) -> str:
    """A name for the data at an absolute path, or a URL: that of its last folder or file that is not generic."""
    is_there = "://" not in path and os.path.exists(path)  # whatever its name holds, it is no glob
    parts = [part for part in re.sub(r"^\w+://", "", path).split("/") if is_there or not is_glob(part)]
    names = [valid_name(re.sub(r"\.[A-Za-z]\w*(\.\w+)?$", "", part), "") for part in reversed(parts)]
    return next((name for name in names if name and name.lower() not in GENERIC), "dataset")


def written_path(path: str, folder: str, *, keep: bool = False) -> str:
    """An absolute path, or a URL, as a spec in `folder`, which is absolute, writes it.

    A path that is not below the folder stays absolute if it is to be kept.

    >>> written_path("/home/ann/data/rows.jsonl", "/home/ann/specs")
    '../data/rows.jsonl'

    Raises:
        UnknownDataError: it is not UTF-8.
    """
    if not is_utf8(path):
        raise UnknownDataError(f"{ascii(path)}: a path that is not UTF-8 cannot be written down: rename it")
    start = folder if os.path.exists(path) or not is_glob(path) else escape(folder)
    if "://" in path or (keep and not f"{path}/".startswith(f"{start}/")):
        return path
    seen = os.path.relpath(path, start)
    return f"{seen}/" if os.path.isdir(path) else seen


def write_spec(file: Path, text: Callable[[], str], *, force: bool = False) -> None:
    """Writes a file; one that is there only with `force`.

    Raises:
        UserError: it is there, or cannot be written.
    """
    if file.exists() and not force:
        raise UserError(f"{file} is there already: name another file, or write over it with --force")
    made = text()
    try:
        with file.open("w" if force else "x", encoding="utf-8", newline="\n") as opened:
            opened.write(made)
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None


def _absolute(path: str) -> str:
    """A path with the folders that lead to it; a glob stays one."""
    if "://" in path:
        return path
    here = os.getcwd() if os.path.exists(path) else escape(os.getcwd())
    return os.path.normpath(os.path.join(here, path))


def _checked(name: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(name)
    except ValidationError:
        message = f"--name: {name!r} is no name of a dataset: a letter, then letters, digits and underscores"
        raise UserError(message) from None


def try_spec(spec: Spec, features: Iterable[Guess], sample: SourceSample) -> tuple[list[str], Choice | None]:
    """Reads the sample as a build of the spec does; the spec's sources are the sample's, its features the guesses.

    Returns:
        The result in words, and the limit of rejects that a build would need, with the reason, if any would be one.

    Raises:
        SourceError: a build could not be planned.
    """
    blocks, is_all = sample.take(spec.columns(), spec.key_columns)
    rejects = Rejects((reject.reason, reject.column or "") for _, block in blocks for reject in block.rejects)
    key = spec.key_columns[0] if spec.key_columns else "@key"
    keys = [value for _, block in blocks for value in block.table[key].to_pylist()]
    rejects["duplicate_key", ""] = len(keys) - len(set(keys))
    rejects, rows = +rejects, sum(count_rows(block) for _, block in blocks)
    images, bad = _bad_images(features)
    words, before = in_words(rows, is_all=is_all), ", before their images are opened" if images else ""
    lines = [f"{words[:1].upper()}{words[1:]}{before}: {_rejected(rejects)}."]
    if images:
        headers = f"By the images' headers in {counted(images, 'row')}"
        lines.append(f"{headers}: {_rejected(bad)}; no pixel was decoded.")
    if not keys or 0 < images == bad.total():
        lines.append("None of these rows is good, so nothing would be built.")
    if hasattr(sample.sources[0], "encoding") and any(reason == "invalid_utf8" for reason, _ in rejects):
        lines.append(ENCODING)
    return lines, _limit(rejects.total() / max(rows, 1) + bad.total() / max(images, 1))


def _bad_images(features: Iterable[Guess]) -> tuple[int, Rejects]:
    """The number of rows whose images' headers were read, and those with a bad one."""
    rows = [(item.column, headers) for item in features for headers in item.headers]
    faults = [(column, [header for header in headers if isinstance(header, str)]) for column, headers in rows]
    return len(rows), Rejects((reasons[0], column) for column, reasons in faults if reasons)


def _limit(share: float) -> Choice | None:
    """The share of rejects that the build of such data needs; None where the sample has none."""
    if not share:
        return None
    limit = min(1.0, math.ceil(300 * share + 10) / 100)
    return {"max_share": limit}, f"a build stops at 1 %, and about {share:.1%} of the sample would be rejects"


def _rejected(rejects: Rejects) -> str:
    if not rejects:
        return "none would be a reject"
    ordered = sorted(rejects.items(), key=lambda item: (-item[1], item[0]))
    reasons = [f"{count:,} {reason}{f' in column {column}' if column else ''}" for (reason, column), count in ordered]
    are = "would be a reject" if rejects.total() == 1 else "would be rejects"
    return f"{rejects.total():,} {are} ({', '.join(reasons)})"


def write_draft(
    draft: Draft,
    name: str,
    written_path: Callable[[str], str],
    notes: Sequence[str] = (),
    limit: Choice | None = None,
) -> str:
    """Writes a draft.

    Args:
        draft: everything that the spec says.
        name: the dataset's name.
        written_path: makes a path of the spec of an absolute one, or of a URL.
        notes: the first comments.
        limit: the limit of rejects that a build would need, which the user has to choose; None where it needs none.
    """
    lines = [*(f"# {shown(note)}" for note in notes), option_line("name", (name, "the shards are named after it")), ""]
    lines += [*_source_lines(draft.data, written_path), ""]
    lines += [*(option_line(option, choice) for option, choice in draft.rows.items()), "", "features:"]
    for feature, guess in draft.features.items():
        named = {} if guess.column == feature else {"column": (guess.column, "")}
        options = {"kind": guess.options["kind"], **named, **guess.options}
        lines += [f"  {feature}:", *(option_line(option, choice, "    ") for option, choice in options.items())]
    for guess in draft.unused:
        lines.append(shown(f"  # {guess.column or ascii('')}: {guess.options['#'][1]}"))
    lines += ["", *(option_line(option, choice) for option, choice in draft.label.items())]
    if limit is not None:
        lines += ["", option_line("# rejects", limit)]
    return "".join(f"{line}\n" for line in lines)


def _source_lines(data: Recognized, written_path: Callable[[str], str]) -> Iterator[str]:
    yield from (f"# {shown(note)}" for note in data.notes)
    yield "source:"
    for source in data.sources:
        start = "  " if len(data.sources) == 1 else "  - "
        for option, value in source.items():
            text = written_path(value) if option in PATHS else value
            yield option_line(option, (text, data.why.get(option, "")), start)
            start = " " * len(start)


def option_line(key: str, choice: Choice, start: str = "") -> str:
    """A key with its value in one line, behind `start`, and the reason as a comment behind or above it.

    A key may begin with # itself: then all of the line is a comment.

    >>> option_line("name", ("a", "by the path"))
    'name: a                                         # by the path'
    """
    value, why = choice
    comment = "# " if key.startswith("# ") else ""
    line = f"{start}{comment}{_scalar(key.removeprefix(comment))}: {_scalar(value)}"
    if len(line) > LONG and why:
        return f"{' ' * len(start)}# {shown(why)}\n{line}"
    return f"{line:<{COMMENTS}}  # {shown(why)}" if why else line


def _scalar(value: Any) -> str:
    """A value in YAML's flow style, in one line."""
    dumped = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return dumped.removesuffix("\n").removesuffix("\n...")


def shown(comment: str) -> str:
    """A comment in one line that any editor shows."""
    line = "".join(letter if letter.isprintable() else "�" for letter in comment)
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


class _Dumper(yaml.SafeDumper):
    """Writes every string in one line: PyYAML would break lines, and write U+0085, which it reads as a break, bare."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(STRING, text, style=None if text.isprintable() else '"'),
)
