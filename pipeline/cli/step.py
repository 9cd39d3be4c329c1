"""`recordmill show DIR --step`: the rows of a training's step, by its state or its options."""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import recordmill
from recordmill.pipeline.cli.screen import count, print_line
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE
from recordmill.pipeline.dataset.paths import replacing
from recordmill.pipeline.errors import DatasetError, listed
from recordmill.pipeline.inspection import Record, lines_of
from recordmill.pipeline.json_values import Count, parse_json, read_as
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.mix import MixedSource
from recordmill.pipeline.reader.step_rows import Row
from recordmill.pipeline.versions.stores.open_store import open_location

DRAWN = 200  # rows on a page
SAME = ("split", "seed", "shuffle", "balance", "drop_remainder")  # facts of a state that are options
Datasets = dict[tuple[Any, Any], recordmill.Dataset]
"""Datasets by name and version."""


class Facts(TypedDict):
    """The facts of any state."""

    seed: int
    global_batch_size: Count
    mixed: NotRequired[list[dict[str, Any]]]
    quotas: NotRequired[list[Any]]


def read_state(file: Path) -> Any:
    """Reads a file with a state, or with one of `TrainingCheckpoint`. Raises: DatasetError."""
    try:
        state = parse_json(file.read_bytes())
        state = state.get("input", state) if isinstance(state, dict) else state
        read_as(state, Facts, "the state")
    except (OSError, DatasetError) as error:
        raise DatasetError(f"{file} cannot be read ({error}): name a file with a state, as JSON") from None
    return state


def open_datasets(folders: Sequence[str], state: Any) -> Datasets:
    """Opens the versions that a state names, each in one of the folders. Raises: DatasetError: one is not there."""
    wanted = [(facts.get("dataset"), facts.get("version")) for facts in state.get("mixed", [state])]
    opened = Datasets()
    for folder in folders:
        is_version = (open_location(folder) / MANIFEST_FILE).is_file()
        for _, version in wanted:
            with suppress(DatasetError):
                dataset = recordmill.open_dataset(folder, None if is_version else version)
                opened[dataset.name, dataset.version] = dataset
    for name, version in wanted:
        if (name, version) not in opened:
            lacks = f"{listed(folders)} lacks the version {version} of {name}, which the state names"
            raise DatasetError(f"{lacks}: name its folder; of a mixture's other datasets by --mixed")
    return opened


def input_of(state: Any, opened: Datasets, host: int, hosts: int, without: Sequence[Path]) -> Input:
    """Makes the input of a state for a host, with lists of keys that it left out. Raises: DatasetError."""
    files, inputs = iter(without), list[Input]()
    of_splits = state.get("mixed", [state])
    lists = state.get("without") if "mixed" in state else [state.get("without")]
    for facts, left_out in zip(of_splits, lists or [None] * len(of_splits), strict=True):
        options: dict[str, Any] = {name: facts[name] for name in SAME if name in facts}
        options["text"] = "packed" if "packed" in facts else "bucketed" if facts.get("bucketed") else "padded"
        options |= {"text_length": facts.get("packed"), "features": None if facts.get("bucketed") else []}
        options |= {"batch_size": max(1, state["global_batch_size"] // hosts), "host_index": host, "host_count": hosts}
        # A damaged record ends a training with on_error='raise': all batches before it are the same.
        options |= {"with_key": True, "on_error": "skip", "without": next(files, ()) if left_out else ()}
        options["label"] = state.get("label") if facts.get("balance") else None
        inputs.append(opened[facts["dataset"], facts["version"]].training_input(**options))
    if "mixed" not in state:
        return inputs[0].resume(state)
    sources = [source for each in inputs for source in each.source.sources]
    given, quotas = replace(sources[0].given, seed=state["seed"]), state["quotas"]
    by_step = dict(quotas) if isinstance(quotas[0], list) else {0: quotas}
    return Input(MixedSource(sources, by_step, given)).resume(state)


def show_step(
    state: Any, opened: Datasets, step: int, hosts: int, without: Sequence[Path], spec: Path | None, png: Path | None
) -> None:
    """Prints a step's rows, host by host, with `spec` also their places in the sources. Raises: DatasetError."""
    if len(opened) > 1 and (spec or png):
        raise DatasetError("--spec and --output are for one dataset, and this is a mixture of several")
    [dataset, *_], drawn, lines = opened.values(), list[Record](), list[str]()
    for host in range(hosts):
        rows = input_of(state, opened, host, hosts, without).rows(step)
        records = read(opened, rows)
        drawn += (records[row.record] for row in rows)
        origins = origins_of(dataset, spec, drawn[-len(rows) :]) if spec else {}
        lines.append(f"step {step:,}, host {host} of {hosts}: {count(len({row.place for row in rows}), 'row')}")
        for row in rows:
            [first, *values] = lines_of(records[row.record])
            share = f", {row.share:.1%} of its row" if row.share < 1 else ""
            places = [f"{row.file}, line {row.line:,}"] if row.file else origins.get(row.key, [])
            lines += [f"{row.place:>4}  {first}{share}", *(f"      from {each}" for each in places)]
            lines += (f"    {value}" for value in values)
    print_line("\n".join(lines))
    if png is not None:
        from recordmill.pipeline.facts.preview import preview

        with replacing(png, durable=False) as new:
            preview(dataset, drawn[:DRAWN]).save(new, "PNG")
        print_line(f"{png}: {min(DRAWN, len(drawn)):,} of {count(len(drawn), 'record')}")


def read(opened: Datasets, rows: Sequence[Row]) -> dict[tuple[str, str, str, int], Record]:
    """Reads rows' records, by `Row.record`. Raises: DatasetError."""
    wanted = defaultdict[tuple[str, str, str], set[int]](set)
    for row in rows:
        wanted[row.record[:3]].add(row.position)
    each = ((place, opened[place[:2]].records(place[2], positions=sorted(of))) for place, of in wanted.items())
    return {(*place, record.position): record for place, records in each for record in records}


def origins_of(dataset: recordmill.Dataset, spec: Path, records: Sequence[Record]) -> dict[str, list[str]]:
    """Finds the places of records' rows in the sources, by key. Raises: UserError as `find_origins`."""
    from recordmill.pipeline.build.build import source_files
    from recordmill.pipeline.build.results.row_origins import find_origins

    keys, found = defaultdict[bytes, list[str | None]](list), defaultdict[str, list[str]](list)
    for record in records:
        keys[record.key.encode("utf-8", "surrogateescape")].append(record.span)
    for key, origin in find_origins(
        recordmill.load_spec(str(spec)), dataset.folder, dataset.manifest, keys, source_files()
    ):
        found[key.decode("utf-8", "surrogateescape")].append(str(origin))
    return found
