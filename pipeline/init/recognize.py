"""Lists the data at a path, once, and finds the sources that read it, with options and reasons."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.dataset.tfrecord import HEADER_BYTES, record_length
from recordmill.pipeline.init import belonging, dialect
from recordmill.pipeline.init.belonging import Joined
from recordmill.pipeline.init.beside import find_beside, image_lists, in_folders, part_doubts
from recordmill.pipeline.init.doubts import DAY, Doubt, UnknownDataError, Written, document_doubts, folder_doubts
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.batches import by_key, spread
from recordmill.pipeline.sources.encoded import BYTE_ORDER_MARK, naming_damage, open_plain, uncompressed_name
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.annotated_rows import image_key
from recordmill.pipeline.sources.formats.image_fields import Beside, image_place
from recordmill.pipeline.sources.formats.image_folder import NAMES, captions_of
from recordmill.pipeline.sources.formats.text import places_of_lines
from recordmill.pipeline.sources.globs import escape, folder_prefix, glob_pattern, is_glob, without_slash
from recordmill.pipeline.sources.naming import CLASS_NAMES, FORMATS, SPLIT_NAME, by_split, divided, split_of
from recordmill.pipeline.sources.paths import image_test, is_image, join, listed, note

DESCRIPTIONS = {
    "state.json": b'"_data_files"', "dataset_info.json": b'"features"', "dataset_infos.json": b'"features"',
    "dataset_dict.json": b'"splits"',
}  # fmt: skip
"""Names of Hugging Face's dataset descriptions, and a part of their contents."""
SHARD = re.compile(r"-\d+-of-\d+$")
ROWS = "write its rows as Parquet, JSON Lines or CSV, and give these"
HUGGING_FACE = "write its rows by `Dataset.to_parquet`, and give these"
PICTURE = "is not read: convert all to PNG (`magick mogrify -format png FILES`), and give their folder"
FOREIGN = {  # the commonest unsupported files: what they are, and the remedy, by endings
    ".zip .rar .7z": "an archive, which no source reads: unpack it, and give the folder",
    ".xlsx .xls": "an Excel workbook, which no source reads: save each sheet as CSV (UTF-8), and give these",
    ".npy .npz": f"a NumPy array, alone, damaged or of no rows: give a folder of images, or {ROWS}",
    ".arrow": f"an Arrow file of Hugging Face's `save_to_disk`, which no source reads: {HUGGING_FACE}",
    ".yaml .yml": "YAML, not data: give the data that it describes",
    ".ppm .pgm .pbm .pnm .jp2 .dng .psd .exr": f"an image, which {PICTURE}",
    ".dcm": "a DICOM image, which no source reads: save its `pixel_array` as .npy or TIFF, and give the folder",
    ".mat .h5 .hdf5": "a file of arrays, which no source reads: save them by `numpy.savez`",
    ".pkl .pickle": f"a Python pickle, which no source reads: {ROWS}",
}
TABLES = ("parquet", "tfrecord", "webdataset", "jsonl", "csv", "tsv", "conll", "conllu")
"""The formats that are surely data, in order of preference."""
NAMING = ("jsonl", "csv", "tsv", "parquet")  # formats with rows that may name images
CELLS, JSON, IMAGES = ("csv", "tsv"), ("json", "jsonl"), "image_folder"
TEXTS = (*CELLS, *belonging.SENTENCES, "jsonl", "json", "text")  # formats with an encoding
SHOWN, FIRST_LINE = 3, 1 << 16
FILES = 16  # files of a source to look at
SMALL_FILES = 1_000  # the same for files that are rows: images and documents
SourceFiles = tuple[str, str | None, Sequence[FileInfo]]  # a source's path, the split of its rows, and its files
CELL_WORD = re.compile(rb"[\w.\- \x80-\xff]+")


@dataclass(frozen=True)
class Recognized:
    """The sources of some data, which differ only in path and split."""

    sources: Sequence[Mapping[str, Any]]  # each source's options, as in the spec
    files: Sequence[FileInfo]
    is_whole: bool  # whether these are all files of the sources
    why: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()  # comments on unread data and missing guesses
    folders: Sequence[str] = ()  # the folders of all images, relative to the source's, if images are rows
    known: Mapping[str, Mapping[str, tuple[Any, str]]] = field(default_factory=dict)
    """Options of columns stated by the format, with reasons."""
    image_column: str | None = None  # the column of image names without ending
    doubts: Sequence[Doubt] = ()
    days: Mapping[str, str | None] = field(default_factory=dict)
    """The sources' paths with placeholders, if they lie in folders of days."""

    def __post_init__(self) -> None:
        stated = [{name: value for name, value in each.items() if value is not None} for each in self.sources]
        object.__setattr__(self, "sources", stated)

    @property
    def split_names(self) -> list[str]:
        """The splits of whole sources."""
        return [source["split"] for source in self.sources if "split" in source]


def recognize(files: Files, path: str, in_folder: Sequence[FileInfo] | None, encoding: str | None = None) -> Recognized:
    """Finds the sources of data at an absolute path or URL, of a folder's files. Raises: UnknownDataError, OSError."""
    if in_folder is not None:
        return _folder(files, without_slash(path) or path, in_folder, encoding)
    literal = is_glob(path) and "://" not in path and files.match(escape(path))
    matched = literal or files.match(path)
    filled = [file for file in matched if file.bytes]
    if not filled:
        raise UnknownDataError(f"{path}: {'is empty' if matched else 'no such file or folder'}")
    forms = sorted({format_of(files, file.path) for file in spread(filled, FILES)})
    if len(forms) > 1:
        raise UnknownDataError(f"{path} matches files of several formats ({', '.join(forms)}): give a glob of one")
    folder = folder_prefix(escape(path) if literal else path)[:-1]
    sources: list[SourceFiles] = [(path, None, filled)]
    splits = divided(filled, lambda file: file.path[len(folder) + 1 :].split("/"))
    if None not in splits:
        every = files.match(f"{escape(folder)}/**")
        sources = [(path, split, some) for split, of in splits.items() for path, some in _paths(folder, of, every)]
    found = _table(files, forms[0], sources, encoding)
    (folder, name), own = posixpath.split(path), split_of(posixpath.basename(path))
    every = files.match(f"{escape(folder)}/*{escape(posixpath.splitext(name)[1])}") if own and not is_glob(name) else []
    named = by_split((posixpath.basename(file.path) for file in every if file.bytes), lambda name: [name])
    others = [some[0] for split, some in named.items() if split not in (None, own)]
    what = f"one split by its name; left out beside it: {listed(others, SHOWN)}"
    doubts = [Doubt(name, what, f"All: recordmill init '{folder}'")] if others else []
    return replace(found, doubts=[*found.doubts, *doubts])


def _folder(files: Files, folder: str, filled: Sequence[FileInfo], encoding: str | None) -> Recognized:
    """Returns a folder's sources: its images, or its files of one format."""
    if not filled:
        raise UnknownDataError(f"{folder} holds no file, or only empty and hidden ones")
    by_format, by_ending = dict[str, list[FileInfo]](), dict[str, str]()
    is_row = image_test(file.path for file in filled)
    for file in filled:
        if _describes(files, file.path):
            continue
        if posixpath.basename(file.path) == MANIFEST_FILE and b'"build_key"' in read_head(files, file.path):
            raise UnknownDataError(f"{folder} holds a built dataset: see `recordmill show`")
        ending = posixpath.splitext(SHARD.sub("", file.path))[1]
        form = IMAGES if is_row(file.path) else format_by_name(file.path) or by_ending.get(ending)
        if form is None:
            form = by_ending[ending] = _format_of_frames(files, file.path)
        by_format.setdefault(form, []).append(file)
    images, tables = by_format.get(IMAGES, []), [file for form in TABLES for file in by_format.get(form, ())]
    of_images, of_tables = (sum(file.bytes for file in some) for some in (images, tables))
    has_metadata = any(posixpath.basename(file.path) in NAMES for file in tables)
    if images and (has_metadata or of_images >= of_tables):
        return _images(files, folder, images, [file for file in filled if not is_row(file.path)], encoding)
    has_samples = 2 * sum(file.bytes for file in by_format.get("webdataset", ())) > of_tables  # img2dataset's
    form = "webdataset" if has_samples else next((form for form in TABLES if form in by_format), None)
    largest = max(filled, key=lambda file: file.bytes)
    if form is None and largest in by_format.get("", ()):
        format_of(files, largest.path)
    form = form or max(("text", "json"), key=lambda form: len(by_format.get(form, ())))
    chosen, unequal = by_format.get(form, filled), list[str]()
    texts = [*by_format.get("text", []), *by_format.get("", [])] if form == "text" else []
    if len(texts) > 1:
        options, why, doubts = _written(files, "", texts, encoding, [("", None, texts)])
        code = options.get("encoding", "utf-8")
        joined, unequal = belonging.join_files(texts, lambda path: places_of_lines(files, path, code)[1])
        if joined:
            return _joined(folder, filled, joined, Recognized([options], [], True, why, unequal, doubts=doubts))
    if form == "json" and form in by_format:
        chosen = belonging.files_of_rows(folder, chosen, [read_head(files, file.path) for file in chosen])
    form = [format_of(files, file.path) for file in spread(chosen, FILES)][-1]
    splits = by_split(chosen, lambda file: file.path[len(folder) + 1 :].split("/"))
    sources = [(path, split, some) for split, every in splits.items() for path, some in _paths(folder, every, filled)]
    used = {file.path for _, _, some in sources for file in some}
    left = [file for file in filled if file.path not in used]
    found = _table(files, form, sources, encoding, [*_left_out(folder, left), *unequal])
    days = {path: _of_days(folder, [file.path for file in some]) for path, _, some in sources}
    return replace(found, days=days)


def _joined(folder: str, filled: Sequence[FileInfo], joined: Sequence[Joined], written: Recognized) -> Recognized:
    """Returns a source for each group of joined files, with its split; `written` has options of all."""
    splits = by_split(joined, lambda each: next(iter(each.files.values())).path[len(folder) + 1 :].split("/"))
    chosen = [(split, each) for split, some in splits.items() for each in some]
    sources = list[Mapping[str, Any]]()
    for split, each in chosen:
        place = {"format": "text", "path": each.folder, "columns": each.columns}
        sources.append({**place, **written.sources[0], "split": split})
    shown = [file for _, each in chosen for file in each.files.values()]
    left = _left_out(folder, [file for file in filled if file not in shown])
    lines = [each.lines for _, each in chosen]
    same = f"line n of each file is one row: {listed([f'{each:,} lines each' for each in lines], SHOWN)}"
    names = " and ".join(chosen[0][1].columns.values())
    rule = Doubt(names, f"both have {lines[0]:,} lines: line n of each is one row", "Separate rows: a source for each")
    doubts = [*written.doubts, *([rule] if len({*lines}) == 1 else [])]  # several numbers are no coincidence
    why, notes = {**written.why, "columns": same}, [*left, *written.notes]
    return replace(written, sources=sources, files=shown, why=why, notes=notes, doubts=doubts)


def _images(
    files: Files, folder: str, images: Sequence[FileInfo], others: Sequence[FileInfo], encoding: str | None
) -> Recognized:
    """Recognizes a folder of images by their metadata, else by tables that name them, else by files beside them."""
    start = len(folder) + 1
    if metadata := [file for file in others if posixpath.basename(file.path) in NAMES]:
        used = {*metadata, *captions_of(images, others).files()}
        names = listed([file.path[start:] for file in metadata], SHOWN)
        why = {"format": f"{count(len(images), 'image')}; the rows are those of {names}"}
        notes = _left_out(folder, [file for file in others if file not in used])
        days = {folder: _of_days(folder, [file.path for file in images], "")}
        return Recognized([{"format": IMAGES, "path": folder}], metadata, True, why, notes, days=days)
    whole = {file.path: file for file in (*images, *others)}
    inside = [file._replace(path=path[start:]) for path, file in whole.items()]
    beside, doubts = find_beside(files, folder, inside)
    rows, rest, pairs = Beside.pair(inside, beside)
    doubts = [*doubts, *part_doubts(rows, pairs)]
    images, others, masks = ([whole[f"{folder}/{file.path}"] for file in some] for some in (rows, rest, pairs.files()))
    sources: list[dict[str, Any]] = [{"format": IMAGES, "path": folder, "beside": beside or None}]
    lists = image_lists(files, images, others) if beside else {}
    if lists:
        sources = [{**sources[0], "image_list": file.path, "split": split} for split, (file, _) in lists.items()]
        known = {path for _, some in lists.values() for path in some}
        pairs = Beside.pair(inside, beside, lambda path: join(folder, path) in known)[2]
        images = [file for file in images if file.path in known]
    of_lists, shown = [file for file, _ in lists.values()], spread(images, SMALL_FILES)
    used = {*captions_of(images, others).files(), *of_lists}
    left = [file for file in others if file not in used]
    chosen, tables = _tables(files, folder, images, left)
    if chosen:
        unread = [file for file in others if file.path not in [path for path, _, _ in chosen]]
        return _table(files, format_by_name(chosen[0][0]) or "", chosen, encoding, _left_out(folder, unread))
    doubts += [] if in_folders(beside) else folder_doubts([file.path for file in images])
    for path in tables[:1]:
        doubts.append(Doubt(path, "its rows may name these images", f"If so: recordmill init {path}"))
    for path in _annotations(files, images, left)[:1]:
        doubts.append(Doubt(path, "left out, though it may annotate these images", "If so: write COCO, VOC or YOLO"))
    what = "mask" if "mask" in beside else "file"
    why = {"format": f"{count(len(images), 'image')}, each one a row"}
    why["beside"] = f"{count(len(masks), what)}, by their names"
    used_files = [*dict.fromkeys([*shown, *captions_of(shown, others).files(), *masks, *of_lists])]
    folders = sorted({posixpath.dirname(image_place(beside)(file.path) or "") for file in rows})
    notes = [*pairs.notes, *_left_out(folder, left)]
    is_whole, days = len(shown) == len(images), {folder: _of_days(folder, [file.path for file in images], "")}
    return Recognized(sources, used_files, is_whole, why, notes, folders, doubts=doubts, days=days)


def _tables(
    files: Files, folder: str, images: Sequence[FileInfo], left: Sequence[FileInfo]
) -> tuple[list[SourceFiles], list[str]]:
    """Finds a table that names images for each split, or one named as their folder; and others that may name them."""
    names = {posixpath.basename(file.path) for file in images}
    names |= {stem for stem in (posixpath.splitext(name)[0] for name in names) if not stem.isdecimal()}
    cells = {name.encode() for name in names}
    tables = {file.path: file for file in left if format_by_name(file.path) in NAMING}
    # `train_labels.csv`, or `train/_annotations.csv`
    alike = by_key(tables.values(), lambda file: SPLIT_NAME.sub("*", file.path[len(folder) :].lower()))
    found = (by_split(some, lambda file: file.path[len(folder) + 1 :].split("/")) for some in alike.values())
    best = max(found, key=len, default={})
    alone: list[SourceFiles] = [(some[0].path, split, some) for split, some in best.items() if len(some) == 1]
    chosen = [each for each in alone if cells.intersection(CELL_WORD.findall(read_head(files, each[0])))]
    if len(chosen) > 1 and chosen[0][1] == "train":
        return chosen, []
    tops = [path for path in tables if posixpath.dirname(path) == folder]
    tops = [path for path in tops if not CLASS_NAMES.fullmatch(path[len(folder) :])]
    tops.sort(key=lambda path: split_of(posixpath.basename(path)) != "train")  # before `sample_submission.csv`
    for path in tops:
        stem = posixpath.splitext(path)[0]
        places = (f"{stem}/", f"{stem}_images/", f"{stem.removesuffix('train')}images/")
        if any(image.path.startswith(places) for image in images):  # of `train/`, or `images/`
            return [(path, None, [tables[path]])], []
    heads = ((path, read_head(files, path)) for path in spread([*tables], FILES))
    return [], tops or [path for path, head in heads if cells.intersection(CELL_WORD.findall(head))]


def _annotations(files: Files, images: Sequence[FileInfo], left: Sequence[FileInfo]) -> list[str]:
    """Lists the files that may annotate images: named as one, else with an image's name in the first bytes."""
    keys = {image_key(file.path) for file in images}
    names = {posixpath.basename(file.path) for file in images}  # of `1.jpg.json`; those without ending, in any folder
    names |= {posixpath.splitext(name)[0] for name in names}
    some = [posixpath.basename(file.path) for file in spread(images, SHOWN)]
    words = [word.encode() for name in some for word in (name, f'"{posixpath.splitext(name)[0]}"')]
    texts = [file.path for file in left if file.path.lower().endswith((".txt", ".xml", ".json", ".mat", ".pts"))]
    named = [path for path in texts if image_key(path) in keys or posixpath.basename(path).rpartition(".")[0] in names]
    return named or [path for path in spread(texts, FILES) if any(map(read_head(files, path).__contains__, words))]


def _paths(folder: str, files: Sequence[FileInfo], filled: Sequence[FileInfo]) -> list[tuple[str, Sequence[FileInfo]]]:
    """Returns a path that matches exactly some of a folder's files, else each file's, or the whole folder for many."""
    some, every = (sorted(file.path for file in each) for each in (files, filled))
    if len(some) == 1:
        return [(some[0], files)]
    common = posixpath.commonprefix([posixpath.basename(path)[::-1] for path in some])[::-1]
    ending = f"*{escape(common[common.find('.') :])}" if "." in common else "*"
    start = escape(posixpath.commonprefix(some))
    below = start[: start.rfind("/") + 1]
    patterns = (f"{below}{ending}", f"{start}{ending}", f"{below}**/{ending}", f"{below}**")
    exact = (path for path in patterns if [name for name in every if glob_pattern(path).fullmatch(name)] == some)
    path = next(exact, "" if len(some) <= FILES else f"{escape(folder)}/**")
    return [(path, files)] if path else [(file.path, [file]) for file in files]


def _of_days(folder: str, paths: Sequence[str], rest: str | None = None) -> str | None:
    """Returns the path of files in folders of days, `logs/{YYYY}/{MM}/{DD}/*.csv` or ending in `rest`; else None."""
    found = [DAY.search(path, len(folder)) for path in paths]
    days = [(path[: day.start()], day[2], path[day.end() :]) for path, day in zip(paths, found, strict=True) if day]
    if len(days) < len(paths) or len({each[:2] for each in days}) > 1 or len({day and day[0] for day in found}) < 2:
        return None
    (start, between, _), inside = days[0], [FileInfo(path, 1, 0.0) for path in sorted({each[2] for each in days})]
    rest = _paths("", inside, inside)[0][0] if rest is None else rest
    return f"{start}{between.join(('{YYYY}', '{MM}', '{DD}'))}{rest}"


def _table(
    files: Files, form: str, sources: Sequence[SourceFiles], encoding: str | None, notes: Sequence[str] = ()
) -> Recognized:
    """Makes the sources of files of one format; the first files show how they are written."""
    every = [file for _, _, some in sources for file in some]
    head = read_head(files, every[0].path)
    code = encoding or (dialect.find_encoding(every[0].path, [head])[0] if form in TEXTS else "utf-8")
    text = head.decode(code, "replace").encode()
    inside, why, doubts = belonging.rows_inside(form, every[0].path, text, is_cut=len(head) >= belonging.HEAD_BYTES)
    heads = (read_head(files, file.path) for file in spread(every if form == "text" and not inside else [], FILES))
    forms = {dialect.form_of(each.decode(code, "replace").split("\n")[:-1]) for each in heads}
    if len(forms) == 1 and forms != {"text"}:
        (form,) = forms
        what = f"its lines are read as rows of {form}, since all have as many separators"
        doubts = [Doubt(posixpath.basename(every[0].path), what, "Lines of text: `format: text`. No names: `header`")]
    fixed = {"format": "jsonl" if form == "json" else form}
    form = inside.get("format", form)
    said = belonging.one_row(head, every[0].path) if form in JSON and len(every) == 1 and not inside else ""
    if said and (form == "json" or "pandas" in said):
        raise UnknownDataError(said)
    options, reasons, unsure = _written(files, form, every, encoding, sources) if form in TEXTS else ({}, {}, [])
    why, doubts = {**reasons, **why}, [*unsure, *doubts]
    if len(every) > 1 == len(sources):
        why["format"] = count(len(every), "file")
        named = [name for name in (posixpath.basename(file.path) for file in every) if split_of(name)]
        if 0 < len(named) < len(every):
            what = f"its name is a split's, {count(len(every) - len(named), 'other')} not: all are read as one"
            doubts.append(Doubt(named[0], what, "Give each split its files: several sources, each with `split`"))
    most = SMALL_FILES if options.get("document") == "file" else FILES
    shown = [file for _, _, some in sources for file in spread(some, most)]
    splits = [{**fixed, **inside, "path": path, **options, "split": split} for path, split, _ in sources]
    return Recognized(splits, shown, len(shown) == len(every), why, notes, doubts=doubts)


def _written(
    files: Files, form: str, every: Sequence[FileInfo], encoding: str | None, sources: Sequence[SourceFiles]
) -> Written:
    heads = [read_head(files, file.path) for file in spread(every, FILES)]
    found, reason = (encoding, "as given") if encoding else dialect.find_encoding(every[0].path, heads)
    name = posixpath.basename(every[0].path)
    options, why = ({}, {}) if found == "utf-8" else ({"encoding": found}, {"encoding": reason})
    doubts = [Doubt(name, reason, "Check the word")] if found == "cp1252" != encoding else []
    if form in CELLS:
        head, *more = (head.decode(found, "replace") for head in heads)
        firsts = [text[:FIRST_LINE].split("\n", 1)[0].strip("\r") for text in more]
        beside = partial(naming_classes, files, every)
        own = len(sources[0][2]) - 1 if len(every) == len(heads) else 0
        cells, reasons, unsure = dialect.cell_options(head.encode(), form, name, firsts, beside, own)
        return {**options, **cells}, {**why, **reasons}, [*doubts, *unsure]
    if form == "text":
        is_line = len(every) == len(sources)
        options["document"] = "line" if is_line else "file"
        why["document"] = "one file a split: each line is a row" if is_line else "many files: each is a row"
        sizes = {file.path: file.bytes for file in every if not is_line}
        doubts += document_doubts(sizes) or folder_doubts([*sizes])
    return options, why, doubts


def naming_classes(files: Files, data: Sequence[FileInfo]) -> list[FileInfo]:
    """Lists the files next to the data with a usual name for class names."""
    folder = escape(posixpath.commonprefix([file.path for file in data]).rpartition("/")[0])
    listed = (file for ending in ("txt", "json", "names", "csv") for file in files.match(f"{folder}/*.{ending}"))
    others = {file.path for file in data}
    return [each for each in listed if CLASS_NAMES.fullmatch(posixpath.basename(each.path)) and each.path not in others]


def _left_out(folder: str, files: Sequence[FileInfo]) -> list[str]:
    """Makes comments on files without rows, if any."""
    paths = sorted(file.path[len(folder) + 1 :] for file in files)
    named = [path for path in paths if CLASS_NAMES.fullmatch(posixpath.basename(path))]
    return [*note("left out", [path for path in paths if path not in named]), *note("may name classes", named)]


def format_of(files: Files, path: str) -> str:
    """Returns a file's format by name, or text without zero bytes. Raises: UnknownDataError: unsupported; OSError."""
    described = f"Hugging Face's description of a dataset, not data: {HUGGING_FACE}"
    ending = posixpath.splitext(path)[1].lower()
    foreign = next((what for endings, what in FOREIGN.items() if ending in endings.split()), None)
    foreign = described if _describes(files, path) else foreign
    if foreign:
        raise UnknownDataError(f"{path} is {foreign}")
    if is_image(path):
        raise UnknownDataError(f"{path} is one image: give the folder of the images, {posixpath.dirname(path) or '.'}")
    form = format_by_name(path) or _format_of_frames(files, path)
    if not form and b"\0" in read_head(files, path):
        raise UnknownDataError(f"{path} has no known format by its name: {ROWS}, or give a folder of images or a .npz")
    return form or "text"


def _format_of_frames(files: Files, path: str) -> str:
    """Returns `tfrecord` for a file that begins like TFRecords, with a length and its checksum; else ''."""
    return "" if record_length(files.read(path, 0, HEADER_BYTES)) is None else "tfrecord"


def format_by_name(path: str) -> str | None:
    """Returns the format in a file's name: a source's, or `json`; None if unknown."""
    name = SHARD.sub("", posixpath.basename(uncompressed_name(path)).lower())
    return "tfrecord" if ".tfrecord" in name else FORMATS.get(posixpath.splitext(name)[1])


def _describes(files: Files, path: str) -> bool:
    mark = DESCRIPTIONS.get(posixpath.basename(path))
    return mark is not None and mark in read_head(files, path)


def read_head(files: Files, path: str) -> bytes:
    """Reads a file's first 1 MiB, decompressed, without byte order mark. Raises: SourceError: damaged data; OSError."""
    with naming_damage(path), open_plain(files, path) as file:
        return file.read(belonging.HEAD_BYTES).removeprefix(BYTE_ORDER_MARK)
