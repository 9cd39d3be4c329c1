"""Ways of using a version: the commands, the serving model, other tools, mixtures, augmentations, adoption."""

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from PIL import Image, UnidentifiedImageError

import recordmill
from recordmill import DatasetError, augment
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.compare.diff import diff as diff_versions
from recordmill.pipeline.export.export import ExportError, export
from recordmill.pipeline.verify.parity import with_parity
from recordmill.pipeline.verify.verify import verify as verify_version
from tests.served_alone import LOAD, alone
from tests.table.case import ROWS, SPLITS, Case, Check, difference, named
from tests.table.reading import by_key, key_of, records, stated, wrong_records, wrong_values
from tests.table.ways import REFUSED, Found, World, judged, of_all, way
from tests.table.ways_of_texts import LISTS
from tests.table.world import Table

NO_PIXELS = {kind: "has no pixels" for kind in ("text", "texts", "pair", "chat", "token_labels", "category",
             "categories", "number", "numbers", "array", "raw")}  # fmt: skip


def said(*arguments: object) -> str:
    """Runs the command in this process; returns what it printed. Raises: AssertionError: it failed."""
    with redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    assert end.value.code == 0, out.getvalue()
    return out.getvalue()


def _named_in(table: Table, text: str) -> Iterator[str]:
    """Yields the features that a text does not name."""
    return (f"{name}: is not named" for name in table.cases if name not in text)


@way("planned (`plan`)")
def planned(world: World) -> Found:
    """The plan names each feature, and counts as rejects the rows that the build rejected."""

    def wrong(table: Table) -> Iterator[str]:
        plan = json.loads(said("plan", table.folder / "dataset.yaml", "--json"))
        lines = _named_in(table, str(plan["columns"]))
        yield from (line for line in lines if "cross" not in line)  # it has no column
        if (rejects := table.published.manifest.rejects.get("by_reason", {})) != plan["rejects"]:
            yield f"{next(iter(table.cases))}: plan counts {plan['rejects']} of {rejects}"
        written = sum(split.records for split in table.published.manifest.splits.values())
        if plan["records"] not in (None, written):
            yield f"{next(iter(table.cases))}: plan counts {plan['records']} records of {written}"

    return of_all(world, wrong)


@way("served: raw rows through the serving model")
def served(world: World) -> Found:
    """The model that a build saves makes of raw rows the bits that both readers make of records."""

    def wrong(table: Table) -> Iterator[str]:
        calls = [(len(ROWS), LOAD)]
        if table.folder.name == ("main" if world.whole else "packs"):  # also where there is no project
            calls = [(len(ROWS), alone), *([(1, LOAD)] if world.whole else [])]
        for rows, load in calls:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tf.saved_model, "load", load)
                report = with_parity(verify_version(table.published.folder), table.spec(), rows)
            for problem in report.findings.problems:
                yield str(problem.message).replace("'", "", 1).replace("' ", ": ", 1)
        default = LOAD(f"{table.published.folder}/serving").signatures["serving_default"]
        labels = {table.label, *(name for name, case in table.cases.items() if case.kind == "token_labels")}
        for name in labels & {*default.structured_input_signature[1], *default.structured_outputs}:
            yield f"{name}: a client has to send the label"

    tables = world.tables if world.whole else map(world.of, ("main", "packs"))
    return {name: outcome for table in tables for name, outcome in judged(table.cases, wrong(table)).items()}


@way("shown (`show`)")
def shown(world: World) -> Found:
    """Each feature has its line."""
    return of_all(world, lambda table: _named_in(table, said("show", table.published.folder)))


@way("its values for people (`head`)")
def head(world: World) -> Found:
    """Names of ids, texts, numbers in their own units, pictures."""
    found: dict[str, str] = {}
    for table in world.tables:
        cases = {name: replace(case, shown=words) for name, case in table.cases.items() if (words := _for_people(case))}
        values = {}
        for split in SPLITS:
            for line in said("head", table.published.folder, "--split", split, "-n", 9, "--json").splitlines():
                record = json.loads(line)
                values[record["key"]] = record
        found |= judged(cases, _wrong_words(cases, values))
    return found


def _for_people(case: Case) -> Any:
    """Returns the values for people by row: sides of pictures, numbers of boxes and points; None: not stated."""
    if case.shown is not None or case.kind in NO_PIXELS or {"optional", "store"} & case.feature.keys():
        return case.shown
    if case.dataset != "main":
        return None
    pairs = list(zip(case.read[""], case.in_records()[""], strict=True))
    if case.kind in ("boxes", "keypoints"):
        return [np.reshape(held, (-1, *np.shape(value)[1:])).tolist() for value, held in pairs]
    first = -2 if case.kind == "masks" else -3
    sides = [dict(zip(("height", "width"), np.shape(value)[first:], strict=False)) for value, _ in pairs]
    if case.kind in ("image", "mask"):
        return sides
    return [[size] * len(value) for size, (value, _) in zip(sides, pairs, strict=True)]


def _wrong_words(cases: dict[str, Case], values: dict[str, Any]) -> Iterator[str]:
    for key, record in values.items():
        for name, case in cases.items():
            assert case.shown is not None
            if not _alike(case.shown[ROWS.index(key)], record["values"].get(name)):
                yield f"{name}: {key} is shown as {record['values'].get(name)!r}, not {case.shown[ROWS.index(key)]!r}"


def _alike(wanted: Any, given: Any) -> bool:
    """Whether a value of JSON is the wanted one; of an object only the wanted fields count."""
    if isinstance(wanted, dict) and isinstance(given, dict):
        return all(_alike(each, given.get(name)) for name, each in wanted.items())
    if isinstance(wanted, list) and isinstance(given, list):
        return len(wanted) == len(given) and all(map(_alike, wanted, given))
    return bool(wanted == given) or (isinstance(given, float) and given == pytest.approx(wanted, rel=1e-4, abs=1e-5))


@way(
    "exported to Parquet (`export`)",
    refused=dict.fromkeys(("image", "image_sequence"), "Refused with bands that no image file holds."),
)
def exported(world: World) -> Found:
    """Names, numbers in their own units, files of images; of texts also the ids, and what is as long."""
    found: dict[str, str] = {}
    for table in world.tables:
        cases, dataset, to = dict(table.cases), table.dataset, table.folder / "exported"
        while not to.exists():
            try:
                export(dataset, "parquet", to)
            except ExportError as error:
                name = str(error).split("'")[1]
                found[name] = f"{REFUSED}{error}"
                del cases[name], dataset.manifest.features[name]
        rows = [row for file in (to / "data").iterdir() for row in pq.read_table(file).to_pylist()]
        found |= judged(cases, _wrong_rows(cases, {key_of(row, row["key"].encode()): row for row in rows}))
    return found


def _wrong_rows(cases: dict[str, Case], rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    people = {name: replace(case, shown=[None if each == "[UNK]" else each for each in words])
              if case.kind == "category" else replace(case, shown=words) for name, case in cases.items()
              if (words := _for_people(case)) and "quantiles" not in case.feature}  # fmt: skip
    yield from _wrong_words(people, {key: {"values": {name: _seen(row[name]) for name in people}}
                                     for key, row in rows.items()})  # fmt: skip
    for name, case in cases.items():
        ids = LISTS if case.kind in ("text", "texts", "pair", "chat") else ()
        for part, values in ((part, each) for part, each in case.in_records().items() if part in ids):
            for key, row in rows.items():
                held, wanted = row[f"{name}_{part or 'ids'}"], stated(values, key)
                if case.kind == "texts":
                    held = [id_ for text in held for id_ in text]
                if held != np.ravel(wanted).tolist():
                    yield f"{name}: {part or 'ids'} of {key} are {held}, not {wanted}"


def _seen(cell: Any) -> Any:
    """Returns a cell as people see it: of an image file the sides."""
    if isinstance(cell, list):
        return [*map(_seen, cell)]
    if not isinstance(cell, bytes):
        return cell
    try:
        with Image.open(io.BytesIO(cell)) as image:
            return {"height": image.height, "width": image.width}
    except UnidentifiedImageError:
        return cell.decode()


@way("drawn (`preview`)")
def preview(world: World) -> Found:
    """A picture of the records is drawn."""

    def wrong(table: Table) -> Iterator[str]:
        said("preview", table.published.folder, "--output", table.folder / "page.png")
        with Image.open(table.folder / "page.png") as page:
            if min(page.size) < 100:
                yield f"the picture has {page.size}"

    return of_all(world, wrong)


@way("in the report (`report`)")
def report(world: World) -> Found:
    """Each feature has its card."""

    def wrong(table: Table) -> Iterator[str]:
        said("report", table.published.folder, "--output", table.folder / "page.html")
        yield from _named_in(table, (table.folder / "page.html").read_text())

    return of_all(world, wrong)


@way("verified (`verify`)")
def verified(world: World) -> Found:
    """A good version has no problem."""
    return of_all(world, lambda table: map(str, verify_version(table.published.folder).findings.problems))


@way("compared (`diff`)", mark="nightly")
def compared(world: World) -> Found:
    """A row whose values are another's is found, with each feature that differs."""
    before, after = world.built, world.again("after")
    lines = (after.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    swapped = {**json.loads(lines[7]), "id": ROWS[6], "split": "validation"}
    (after.folder / "rows.jsonl").write_text("\n".join([*lines[:6], json.dumps(swapped), lines[7]]) + "\n")
    rows = diff_versions(before.dataset, after.dataset).rows
    assert rows is not None
    wrong = []
    for name, case in before.cases.items():
        values = [*case.in_records().values(), *case.read.values()]
        differs = any(difference(each[6], each[7]) for each in values if not isinstance(each[6], Check))
        parts = {named(name, part) for part in case.in_records()}
        if differs != bool(parts & rows.features.keys()):
            wrong.append(f"{name}: differs: {differs}; found: {rows.features}")
    return judged(before.cases, wrong)


@way("read by TensorFlow Datasets", mark="nightly")
def tfds(world: World) -> Found:
    """Its own reader gives what records hold."""
    import tensorflow_datasets

    def wrong(table: Table) -> Iterator[str]:
        builder = tensorflow_datasets.builder_from_directory(table.published.folder)
        skip = {name: tensorflow_datasets.decode.SkipDecoding() for name in builder.info.features}
        found = {}
        for split in SPLITS:
            for row in builder.as_dataset(split=split, decoders=skip).as_numpy_iterator():
                held = {name: np.array([each], object) if isinstance(each, bytes) else np.reshape(each, -1)
                        for name, each in row.items() if name != "key"}  # fmt: skip
                found[key_of(held, row["key"])] = held
        yield from wrong_records(table.cases, found)
        for name, feature in builder.info.features.items():
            if hasattr(feature, "names") and feature.names != table.dataset.class_names(name):
                yield f"{name}: its classes are {feature.names}"
            case = table.cases.get(name)  # a string where several planes are one file, or an image may be missing
            is_array = case and case.kind == "image" and feature.shape
            sides = zip(feature.shape, np.shape(case.read[""][0]), strict=True) if case and is_array else ()
            if any(side not in (None, wanted) for side, wanted in sides):
                yield f"{name}: its shape is {feature.shape}"

    return of_all(world, wrong)


LEARNED = "Refused where the versions learned other words, names or figures."
UNLIKE = dict.fromkeys(("image", "image_sequence", "text", "texts", "categories", "number", "numbers"), LEARNED)


@way("in a mixture with a version that learned from other rows", mark="nightly", refused=UNLIKE)
def mixed(world: World) -> Found:
    """Values of the other version mean the same, or a line refuses the mixture."""
    return _mixed(world, "other", [1, 1])


@way("in such a mixture with weights by step", mark="nightly", refused=UNLIKE)
def mixed_by_step(world: World) -> Found:
    """Values before and after the change are those of both versions, or a line refuses the mixture."""
    return _mixed(world, "other_by_step", {0: [1, 1], 3: [1, 3]})


def _mixed(world: World, version: str, weights: Any) -> Found:
    one, other = world.built, world.again(version)
    lines = (other.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    moved = [line.replace('"split": "train"', '"split": "test"') for line in lines[:2]]
    (other.folder / "rows.jsonl").write_text("".join([*moved, *lines[2:]]), encoding="utf-8")
    found = {}
    for name, case in one.cases.items():
        given = {"batch_size": 2, "features": [name], "with_key": True, "label": None}
        inputs = [each.dataset.training_input("train", **given) for each in (one, other)]
        try:
            batches = list(recordmill.mix(inputs, weights, epochs=2).as_numpy())
        except DatasetError as error:
            found[name] = f"{REFUSED}{error}"
        else:
            found[name] = "\n".join(wrong_values({name: case}, by_key(batches), padded=True))
    return found


@way("mirrored by `RandomFlip`, with what lies on it", absent=NO_PIXELS)
def mirrored(world: World) -> Found:
    """Pixels, masks, boxes and key points change their sides together."""
    table = world.table()
    cases = {name: _mirrored(case) for name, case in table.cases.items() if case.kind not in NO_PIXELS}
    options = {"features": list(cases), "with_key": True, "augment": [augment.RandomFlip(1.0)]}
    given = table.dataset.training_input("train", batch_size=6, label=None, **options)
    return judged(cases, wrong_values(cases, by_key(given.as_numpy()), padded=True))


def _mirrored(case: Case) -> Case:
    """Returns the case of the mirrored values, by plain arithmetic."""
    change = {"boxes": _mirrored_boxes, "keypoints": partial(_mirrored_points, case.feature)}.get(
        case.kind, lambda pixels: np.flip(pixels, -1 if case.kind == "masks" else -2)
    )
    read = {part: values if part else [*map(change, values)] for part, values in case.read.items()}
    return replace(case, read=read)


def _mirrored_boxes(boxes: Any) -> Any:
    y_min, x_min, y_max, x_max = np.moveaxis(boxes, -1, 0)
    is_box = (y_max > y_min) & (x_max > x_min)
    return np.where(is_box[..., None], np.stack([y_min, 1 - x_max, y_max, 1 - x_min], -1), 0).astype(np.float32)


def _mirrored_points(feature: dict[str, Any], objects: Any) -> Any:
    moved = objects.copy()
    visible = moved[..., 2] > 0
    moved[..., 1] = np.where(visible, 1 - moved[..., 1], moved[..., 1])
    for one, other in feature["flip_pairs"]:
        places = [feature["points"].index(one), feature["points"].index(other)]
        moved[:, places] = moved[:, places[::-1]]
    return moved


CHANGES = [
    augment.RandomRotation(30), augment.RandomAffine(10, 0.2), augment.RandomRotation90(), augment.RandomCrop(3, pad=1),
    augment.RandomResizedCrop(4), augment.CenterCrop(3), augment.Resize(5), augment.ColorJitter(0.5, 0.5, 0.5, 0.1),
    augment.RandomCutout(2), augment.RandomErasing(1.0), augment.Grayscale(), augment.GaussianBlur(3), augment.Invert(),
    augment.RandomSharpness(), augment.AutoContrast(), augment.Equalize(), augment.Posterize(3), augment.Solarize(),
    augment.RandAugment(), augment.TrivialAugmentWide(),
]  # fmt: skip


@way("changed by every other augmentation", absent=NO_PIXELS, mark="nightly")
def augmented(world: World) -> Found:
    """Images stay images of their type; masks hold no value that they had not, and boxes and points stay inside."""
    table = world.table()
    cases = {name: case for name, case in table.cases.items() if case.kind not in NO_PIXELS}
    wrong = []
    for change in CHANGES:
        for name, case in cases.items():
            image = case.feature.get("image", name)
            options = {"features": [*{name, image}], "with_key": True, "augment": [change], "label": None}
            try:
                rows = by_key(table.dataset.training_input("train", batch_size=1, **options).as_numpy())
            except DatasetError as error:
                if not {"dtype", "bands"} & cases[image].feature.keys():  # the colours of 16 bits, or of many bands
                    wrong.append(f"{name}: {change} is refused: {error}")
                continue
            for key, values in rows.items():
                before = np.asarray(case.read[""][ROWS.index(key)])
                wrong += [f"{name}: {change} {each}" for each in _not_kept(case, before, values[name])]
    return judged(cases, wrong)


def _not_kept(case: Case, before: Any, after: Any) -> Iterator[str]:
    if before.dtype != after.dtype:
        yield f"makes {after.dtype} of {before.dtype}"
    allowed = {case.feature.get("ignore", 0), *np.unique(before)}
    if case.kind in ("mask", "masks") and not set(np.unique(after)) <= allowed:
        yield f"makes {np.unique(after)} of {np.unique(before)}"
    if (
        case.kind in ("boxes", "keypoints")
        and after.size
        and not 0 <= after[..., :2].min() <= after[..., :2].max() <= 1
    ):
        yield f"moves {before.tolist()} to {after.tolist()}"


@way("adopted: its records read as somebody else's", mark="nightly")
def adopted(world: World) -> Found:
    """Adoption reads each stored part, stated as a list of values of its type."""
    table = world.built
    folder = world.folder / "adopted"
    folder.mkdir()
    for file in table.dataset.folder.glob("*.tfrecord-*"):
        shutil.copy(file, folder / f"train-{file.name}")
    types = {"O": "bytes", "i": "int64", "f": "float32"}
    held = [(name, each) for row in records(table.published.folder).values() for name, each in row.items() if len(each)]
    stated = {f"{name}_held": {"kind": "raw", "type": types[each.dtype.kind], "many": True, "column": name}
              for name, each in held}  # fmt: skip
    index, told = world.folder / "index", {"features": stated, "key": "key", "max_share": 1.0}  # values may be missing
    dataset = recordmill.open_tfrecords({"train": folder}, index, **told)
    found = {}
    for row in dataset.evaluation_input("train", batch_size=1, with_key=True).as_numpy():
        key = bytes(row.pop("key")[0]).decode()
        found[key] = {name.removesuffix("_held"): each[0] for name, each in row.items() if name in stated}
    return judged(table.cases, wrong_records(table.cases, found))
