"""Turns a path into the text of a `dataset.yaml` that builds: guessed, written, read back and tried."""

import math
import os
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import yaml
from pydantic import TypeAdapter, ValidationError

from recordmill.pipeline.dataset.paths import write_atomically
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.annotated import list_folder, recognize_annotated
from recordmill.pipeline.init.arrays import recognize_arrays
from recordmill.pipeline.init.boxes import Answers, shared_images
from recordmill.pipeline.init.choose import Draft, make_draft, valid_name, without_unlabelled
from recordmill.pipeline.init.doubts import Doubt, UnknownDataError
from recordmill.pipeline.init.guess import Choice
from recordmill.pipeline.init.images import images_by_name, images_folder
from recordmill.pipeline.init.recognize import recognize
from recordmill.pipeline.init.sample import LINES, SourceSample, count_rows, in_words
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.faults import DUPLICATE
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.globs import escape, is_glob, without_spans
from recordmill.pipeline.sources.options import PATHS, EncodedOptions, Encoding
from recordmill.pipeline.sources.paths import ODD, is_utf8, note
from recordmill.pipeline.sources.source_reader import Block
from recordmill.pipeline.spec.model import Name, Spec, parse_spec
from recordmill.pipeline.yaml_document import STRING
from recordmill.transforms.images.image_facts import fact_lines, loss_words

COMMENTS = 46  # the column of comments, unless the line is longer
WIDE = 100  # a longer line has its comment above
SHOWN = 400  # characters of a comment
LIMITED = {"max_share": "would be rejects", "max_duplicate_share": "repeat a key, as equal texts do: the first stays"}
MOST_REJECTS = 0.05  # more may be a misreading, which no limit should hide
Rejects = Counter[tuple[str, str]]
GENERIC = {"data", "dataset", "files", "images", "imgs", "rows", "shards", "train"}
"""Names of folders and files that do not describe the data: the folder above does."""


def starter(
    path: str,
    files: Files,
    name: str | None = None,
    folder: str | None = None,
    answers: Answers = Answers(),  # noqa: B008 - frozen
) -> str:
    """Writes a starter spec for the data at a path, which builds unchanged; its first line tells the rejects.

    The path is a folder, file or glob, local or a URL, and by default names the dataset. The spec's paths are relative
    to `folder`, by default the working folder. Raises: UserError: no source, no good row, or no answer; OSError.
    """
    here = os.getcwd() if os.path.exists(path) else escape(os.getcwd())  # a glob stays a glob
    whole = path if "://" in path else os.path.normpath(os.path.join(here, path))
    name = dataset_name(whole) if name is None else _checked("--name", Name, name)
    written = partial(written_path, folder=os.path.abspath(folder or "."), keep=os.path.isabs(path))
    _checked("--encoding", Encoding, answers.encoding or "utf-8")
    filled = list_folder(files, whole)
    data = recognize_annotated(files, whole, filled) or recognize_arrays(files, whole, filled)
    data = data or recognize(files, whole, filled, answers.encoding)
    sample = SourceSample(files, data)
    if answers.encoding and not isinstance(sample.sources[0], EncodedOptions):
        raise UserError(f"--encoding is for files of text; {path} is of format {sample.sources[0].format}")
    samples = [sample]
    if len(data.sources) > 1:
        samples = [SourceSample(files, replace(data, sources=[source])) for source in data.sources]
    found: list[Sequence[str]] = [images_folder(each) or images_by_name(each) or () for each in samples]
    if any(found):
        each = zip(sample.data.sources, found, strict=True)
        sources = [{**source, "images": images[0]} if images else source for source, images in each]
        why = {**sample.data.why, "images": "the folder of the images that the rows name"}
        column = next((of[1] for of in found if of[1:]), None)
        sample = SourceSample(files, replace(sample.data, sources=sources, why=why, image_column=column))
    sample = without_unlabelled(sample)
    if group := shared_images(sample):
        why = {**sample.data.why, "group": "an image has several rows, each an object: one row an image, in one split"}
        sources = [{**source, "group": group} for source in sample.data.sources]
        sample = SourceSample(files, replace(sample.data, sources=sources, why=why))
    draft = make_draft(sample, answers)
    draft, lines = try_draft(draft, parse_spec(write_draft(draft, name, str), f"the spec for {path}"), sample)
    notes = [*map(str, draft.doubts), *lines, *sample.notes, *note(ODD, sorted(files.left_out()))]
    notes.append(f"Guesses by `recordmill init` for {path}; each with its reason.")
    if not sample.files.is_whole:
        notes.append("Of large files only the first rows were read: if rows are sorted, the others may differ.")
    if folder is None and "://" not in whole and not os.path.isabs(written(whole)):
        where = "keep it where `init` ran, or write it with `--output FILE`"
        notes.append(f"Paths are relative to the folder of this file: {where}.")
    return write_draft(draft, name, written, notes)


def dataset_name(path: str) -> str:
    """Names the data at an absolute path or URL by its last folder or file that is not generic."""
    is_there = "://" not in path and os.path.exists(path)  # an existing path is not a glob
    parts = [part for part in re.sub(r"^\w+://", "", path).split("/") if is_there or not is_glob(part)]
    names = [valid_name(re.sub(r"\.[A-Za-z]\w*(\.\w+)?$", "", part), "") for part in reversed(parts)]
    return next((name for name in names if name and name.lower() not in GENERIC), "dataset")


def written_path(path: str, folder: str, *, keep: bool = False) -> str:
    """Returns an absolute path, or a URL, as a spec in `folder` writes it; with `keep`, only paths below are relative.

    >>> written_path("/home/ann/data/rows.jsonl", "/home/ann/specs")
    '../data/rows.jsonl'

    Raises: UnknownDataError: the path is not UTF-8.
    """
    if not is_utf8(path):
        raise UnknownDataError(f"{ascii(path)}: the path is not UTF-8 and cannot be written: rename it")
    start = folder if os.path.exists(path) or not is_glob(path) else escape(folder)
    if "://" in path or (keep and not f"{path}/".startswith(f"{start}/")):
        return path
    seen = os.path.relpath(path, start)
    return f"{seen}/" if os.path.isdir(path) else seen


def write_spec(file: Path, text: Callable[[], str], head: str = "", *, force: bool = False) -> str:
    """Writes a head and a text to a new file, or by `force`; returns the text. Raises: UserError: impossible."""
    if os.path.lexists(file) and not force:
        raise UserError(f"{file} exists: name another file, or overwrite it with --force")
    made = text()
    try:
        if force:
            write_atomically(file, (head + made).encode())
        else:
            with file.open("xb") as opened:  # never replaces a file created meanwhile
                opened.write((head + made).encode())
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from None
    return made


def first_lines(text: str) -> tuple[list[str], str]:
    """Returns the doubts at the beginning of a starter spec, one a line, and the next line, the trial's result."""
    every = [line[2:] for line in text.replace("\n#   ", " ").split("\n")]
    doubts = list(takewhile(lambda line: line.startswith("In doubt: "), every))
    return doubts, every[len(doubts)]


def _checked(option: str, kind: Any, value: str) -> str:
    try:
        return str(TypeAdapter(kind).validate_python(value))
    except ValidationError as error:
        rule = "should be a letter, then letters, digits and underscores" if kind is Name else error.errors()[0]["msg"]
        raise UserError(f"{option}: {value!r}: {rule.removeprefix('Value error, ')}") from None


def try_draft(draft: Draft, spec: Spec, sample: SourceSample) -> tuple[Draft, list[str]]:
    """Reads the sample with a draft's spec; returns the complete draft and a report. Raises: UserError: no good row."""
    blocks, is_all = sample.take(spec.columns(), spec.key_columns)
    rejects = Rejects((reject.reason, reject.column or "") for _, block in blocks for reject in block.rejects)
    key = spec.key_columns[0] if spec.key_columns else "@key"
    splits = [source.split for source in sample.sources]  # rows with one key may stay in several splits
    keys = [(splits[number], value) for number, block in blocks for value in block.table[key].to_pylist()]
    again, rows = len(keys) - len(set(keys)), sum(count_rows(block) for _, block in blocks)
    heads = [(item.column, row) for item in draft.features.values() for row in item.headers]
    faults = [(next((each for each in row if isinstance(each, str)), ""), column) for column, row in heads]
    bad = Rejects((fault.partition(":")[0], column) for fault, column in faults if fault)
    images = max((len(item.headers) for item in draft.features.values()), default=0)
    shares = {"max_share": min(1.0, rejects.total() / max(rows, 1) + bad.total() / max(images, 1))}
    shares["max_duplicate_share"] = again / max(rows, 1)
    every = sorted((rejects + bad + Rejects({(DUPLICATE, ""): again})).items(), key=lambda item: (-item[1], item[0]))
    reasons = [f"{some:,} {reason}{f' in column {column}' if column else ''}" for (reason, column), some in every]
    total = sum(some for _, some in every)
    found = f"{total:,} would be {'a reject' if total == 1 else 'rejects'} ({', '.join(reasons)})" if total else ""
    good = [each for _, row in heads for each in row if not isinstance(each, str)]
    profiles = Counter(chain.from_iterable(header.profiles for header in good))
    lost = Counter(chain.from_iterable(header.losses for header in good))
    facts = ", ".join(fact_lines({"profiles": profiles, "losses": lost}))
    losses = [Doubt("images", what, f"To keep all, {instead}") for what, instead in loss_words(lost) if instead]
    doubts = [*draft.doubts, *losses]
    words, and_images = in_words(rows, is_all=is_all), f", and the images' headers in {count(images, 'row')}"
    none = "all are readable, which settles no doubt" if doubts else "none would be a reject"
    lines = [f"{words[:1].upper()}{words[1:]}{and_images if images else ''}: {found or none}."]
    lines += [f"By the headers of {count(len(good), 'image')}: {facts}."] * bool(facts)
    if not keys or 0 < len(heads) == bad.total():
        messages = [reject.message for _, block in blocks for reject in block.rejects] + [fault for fault, _ in faults]
        why = " ".join(["no row is good: a build would be empty.", *lines, *messages[:1]])
        raise UserError(f"{sample.data.sources[0]['path']}: {why}")
    is_digest = key == "@key" and sample.sources[0].format in (*LINES, "parquet", "tfrecord")  # of the row
    limits, unsure = _limits(shares, spec.rejects.max_share or 0.0, found, is_digest=is_digest)
    tried = {**_together(spec, [block for _, block in blocks], words), **limits}
    return replace(draft, tried=tried, doubts=[*doubts, *unsure]), lines


def _limits(
    shares: dict[str, float], accepted: float, found: str, *, is_digest: bool
) -> tuple[dict[str, Choice], list[Doubt]]:
    """Doubts shares of rejects above the accepted one, and raises the limit of those that may be no misreading."""
    most = {"max_share": MOST_REJECTS, "max_duplicate_share": 1.0 if is_digest else MOST_REJECTS}
    limits, doubts = dict.fromkeys(shares, accepted), list[Doubt]()
    for name, seen in shares.items():
        what, remedy = f"{seen:.1%} of the sample {LIMITED[name]}", "Fix the rows, then remove it"
        if accepted < seen <= most[name]:
            limits[name] = min(most[name], math.floor(2_000 * seen) / 1_000)
            what = f"{what}; a limit of {limits[name]:.1%}"
        else:
            what = f"{what}, and a build allows {accepted:.1%}: {found}"
            remedy = f"If this spec reads them right, fix them, or write `{name}`"
        doubts += [Doubt(f"rejects.{name}", what, remedy)] if seen > accepted else []
    why = "at most twice the sample's share: fix the rows, then remove this"
    return ({"rejects": (limits, why)} if max(limits.values()) > accepted else {}), doubts


def _together(spec: Spec, blocks: Sequence[Block], of: str) -> dict[str, Choice]:
    """Finds lists with the same lengths as boxes, or as other lists of varying lengths, in every row."""
    groups = dict[tuple[int, ...], list[str]]()
    for name, feature in spec.features.items():
        column = feature.raw_column()
        if column and column.many:
            counts = [pc.list_value_length(block.table[feature.first_column(name)]).fill_null(0) for block in blocks]
            lengths = np.concatenate(counts) // column.multiple
            groups.setdefault(tuple(lengths.tolist()), []).append(name)
    boxes = {name for name, feature in spec.features.items() if feature.kind == "boxes"}
    sure = [names for lengths, names in groups.items() if len(set(lengths)) > 1 or boxes.intersection(names)]
    found = [names for names in sure if len(names) > 1]
    return {"together": (found if len(found) > 1 else found[0], f"lists of equal lengths in {of}")} if found else {}


def write_draft(draft: Draft, name: str, written_path: Callable[[str], str], notes: Sequence[str] = ()) -> str:
    """Writes a draft as YAML; `written_path` converts an absolute path or URL to the spec's."""
    lines = [*chain.from_iterable(map(comment, notes)), option_line("name", (name, "the shards are named after it"))]
    lines += ["", *chain.from_iterable(map(comment, draft.data.notes)), "source:"]
    for source in draft.data.sources:
        start = "  " if len(draft.data.sources) == 1 else "  - "
        for option, value in source.items():
            text = without_spans(written_path(value)) if option in PATHS else value
            if option == "path" and (day := draft.data.days.get(value)):
                text = written_path(day)
            lines.append(option_line(option, (text, draft.data.why.get(option, "")), start))
            start = " " * len(start)
    lines.append("")
    lines += [*(option_line(option, choice) for option, choice in draft.rows.items()), "", "features:"]
    for feature, guess in draft.features.items():
        named = {} if guess.column == feature else {"column": (guess.column, "")}
        options = {"kind": guess.options["kind"], **named, **guess.options}
        lines += [f"  {_scalar(feature)}:", *(option_line(*option, "    ") for option in options.items())]
    for guess in draft.unused:
        lines += comment(f"{guess.column or ascii('')}: {guess.options['#'][1]}", "  ")
    lines += ["", *(option_line(option, choice) for option, choice in {**draft.label, **draft.tried}.items())]
    return "".join(f"{line}\n" for line in lines)


def option_line(key: str, choice: Choice, start: str = "") -> str:
    """Writes a key and its value in one line after `start`, with the reason as a comment after or above it.

    A key that begins with # makes the whole line a comment.

    >>> option_line("name", ("a", "by the path"))
    'name: a                                         # by the path'
    """
    value, why = choice
    mark = "# " if key.startswith("# ") else ""
    line = f"{start}{mark}{_scalar(key.removeprefix(mark))}: {_scalar(value)}"
    explained = f"{line:<{COMMENTS}}  # {shown(why)}" if why else line
    return explained if len(explained) <= WIDE or not why else "\n".join([*comment(why, " " * len(start)), line])


def _scalar(value: Any) -> str:
    flow: dict[str, Any] = {"default_flow_style": True, "width": math.inf, "allow_unicode": True, "sort_keys": False}
    return str(yaml.dump(value, Dumper=_Dumper, **flow)).removesuffix("\n").removesuffix("\n...")


def comment(text: str, start: str = "") -> list[str]:
    """Wraps a comment into lines after `start`; a single word may be longer."""
    return textwrap.wrap(
        shown(text), WIDE, initial_indent=f"{start}# ", subsequent_indent=f"{start}#   ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def shown(text: str) -> str:
    """Makes a comment one line that any editor shows."""
    line = "".join(letter if letter.isprintable() else "�" for letter in text)
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


class _Dumper(yaml.SafeDumper):
    """Writes every string in one line: PyYAML would break lines, and write U+0085, which it reads as a break, bare."""


_Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar(STRING, text, style=None if text.isprintable() else '"')
)
