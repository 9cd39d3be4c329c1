"""`recordmill show DIR --step`: the rows of a training's step, by its state or its options."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import recordmill
from recordmill.pipeline.cli.extras import SOURCES, check_extra
from recordmill.pipeline.cli.screen import count, print_json, print_line
from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, Location, Manifest
from recordmill.pipeline.dataset.placement import as_key
from recordmill.pipeline.errors import DatasetError, listed
from recordmill.pipeline.inspection import Record, lines_of, record_to_json
from recordmill.pipeline.json_values import Count, parse_json, read_as
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.mix import MixedSource, check_weights
from recordmill.pipeline.reader.step_rows import Row, described, keys_in
from recordmill.pipeline.versions.stores.open_store import open_location

SAME = ("split", "seed", "shuffle", "balance", "drop_remainder")  # facts of a state that are options
Datasets = dict[tuple[str, str], recordmill.Dataset]
"""Datasets by name and version."""


class Facts(TypedDict):
    """The facts of any state, and a mixture's."""

    global_batch_size: Count
    seed: int
    mixed: NotRequired[list[dict[str, Any]]]
    quotas: NotRequired[list[Any]]
    without: NotRequired[list[str | None] | str]


def state_of(place: tuple[str, str | None], step: int, file: Path | None, mixed: Any, given: dict[str, Any]) -> Any:
    """Reads a file with a state, or one of `TrainingCheckpoint` or its folder; or takes a training's options.

    `place` is a folder and a version; options not given are None. Raises: DatasetError.
    """
    is_alone = not mixed if file is None else (given["seed"], given["split"], place[1]) == (None, None, None)
    if (file is None) == (given["batch_size"] is None) or not is_alone:
        both = "--state alone, with --mixed for a mixture, or its --batch-size with --seed, --hosts and --split"
        raise DatasetError(f"--step is of a training: give {both}")
    if file is None:
        options = {name: value for name, value in given.items() if value is not None}
        return recordmill.open_dataset(*place).training_input(**options).state(step)
    try:
        file = file / "training.json" if file.is_dir() else file  # of `TrainingCheckpoint`
        state = parse_json(file.read_bytes())
        state = state.get("input", state) if isinstance(state, dict) else state
        read_as(state, Facts, "the state")
    except (OSError, DatasetError) as error:
        why = getattr(error, "strerror", error)
        raise DatasetError(f"{file} cannot be read ({why}): name a file with a state, as JSON") from None
    return state


def version_of(facts: Any) -> tuple[str, str]:
    """Returns the dataset and the version that facts name."""
    return str(facts.get("dataset")), str(facts.get("version"))


def open_datasets(folders: Sequence[str], state: Any) -> Datasets:
    """Opens the versions that a state names. Raises: DatasetError: one is in no folder, or a folder has none."""
    wanted = {version_of(facts) for facts in state.get("mixed", [state])}
    opened, why, others = Datasets(), "", {*folders}
    for folder in folders:
        is_version = (open_location(folder) / MANIFEST_FILE).is_file()
        for _, version in wanted:
            try:
                dataset = recordmill.open_dataset(folder, None if is_version else version)
                opened[place := (dataset.name, dataset.version)] = dataset
                others -= {folder} if place in wanted else set()
            except DatasetError as error:
                why = f" ({error})"
    for name, version in sorted(wanted - opened.keys()):
        lacks = f"{listed(folders)} lacks the version {version} of {name}, which the state names{why}"
        raise DatasetError(f"{lacks}: name its folder; of a mixture's other datasets by --mixed")
    if wanted and others:
        raise DatasetError(f"{listed(sorted(others))} is of no dataset that the state names: leave it out")
    return {place: opened[place] for place in wanted}


def input_of(state: Any, opened: Datasets, host: int, hosts: int, without: Sequence[Path]) -> Input:
    """Makes the input of a state for a host, with lists of keys that it left out. Raises: DatasetError."""
    if (size := state["global_batch_size"]) % hosts:
        raise DatasetError(f"--hosts must divide the state's global batch size {size:,}, got {hosts:,}")
    files, inputs = {described(keys_in(file)): str(file) for file in without}, list[Input]()
    lists = state.get("without", []) if "mixed" in state else [state.get("without")]
    for facts, left_out in zip(state.get("mixed", [state]), chain(lists, repeat(None)), strict=False):
        if left_out and left_out not in [*files]:  # a damaged state's may be a list
            given = listed([*map(" of ".join, files.items())])
            what = f"the input of {facts.get('dataset')}, {facts.get('split')} left out {left_out}"
            raise DatasetError(f"{what}: name their file by --without FILE, got {given}")
        options: dict[str, Any] = {name: facts[name] for name in SAME if name in facts}
        options["text"] = "packed" if "packed" in facts else "bucketed" if facts.get("bucketed") else "padded"
        options |= {"text_length": facts.get("packed"), "features": None if facts.get("bucketed") else []}
        options |= {"batch_size": size // hosts, "host_index": host, "host_count": hosts}
        # A damaged record ends a training with on_error='raise': all batches before it are the same.
        options |= {"with_key": True, "on_error": "skip", "without": files[left_out] if left_out else ()}
        options["label"] = state.get("label") if facts.get("balance") else None
        inputs.append(opened[version_of(facts)].training_input(**options))
    if others := [file for its, file in files.items() if its not in lists]:
        raise DatasetError(f"the training did not leave the keys of {listed(others)} out: leave the file out")
    if "mixed" not in state:
        return inputs[0].resume(state)
    by_step = state.get("quotas", [])
    by_step = by_step if all(isinstance(each, list) for each in by_step) else [[0, by_step]]
    quotas = dict(read_as(by_step, list[tuple[int, list[int]]], "quotas of the state"))
    check_weights(quotas, len(inputs))
    sources = [source for each in inputs for source in each.source.sources]
    return Input(MixedSource(sources, quotas, replace(sources[0].given, seed=state["seed"]))).resume(state)


def show_step(
    state: Any, opened: Datasets, step: int, hosts: int, without: Sequence[Path], spec: Path | None, *, as_json: bool
) -> list[Record]:
    """Prints a step's rows, with `spec` and their places in the sources; returns the records. Raises: DatasetError."""
    of_hosts = [input_of(state, opened, host, hosts, without).rows(step) for host in range(hosts)]
    records, lines, json = read(opened, [*chain(*of_hosts)]), list[str](), list[dict[str, Any]]()
    origins = dict[str, list[str]]()
    if spec and records:
        [dataset] = opened.values()
        keys = ((record.key, record.span) for record in records.values())
        origins = origins_of(spec, dataset.folder, dataset.manifest, keys)
    for host, rows in enumerate(of_hosts):
        lines.append(f"step {step:,}, host {host} of {hosts}: {count(len({row.place for row in rows}), 'row')}")
        for row in rows:
            [first, *values] = lines_of(records[row.record])
            first += f", of {row.dataset} {row.version}" if len(opened) > 1 else ""
            share = f", {row.share:.1%} of its row" if row.share < 1 else ""
            places = [f"{row.file}, line {row.line:,}"] if row.file else origins.get(row.key, [])
            told = {"host": host, "row": row.place, "share": row.share, "dataset": row.dataset, "version": row.version}
            json.append({**told, "from": places, **record_to_json(records[row.record])})
            lines += [f"{row.place:>4}  {first}{share}", *(f"      from {each}" for each in places)]
            lines += (f"    {value}" for value in values)
    print_json(json) if as_json else print_line("\n".join(lines))
    return [records[row.record] for row in chain(*of_hosts)]


def read(opened: Datasets, rows: Sequence[Row]) -> dict[tuple[str, str, str, int], Record]:
    """Reads rows' records, by `Row.record`. Raises: DatasetError."""
    wanted = defaultdict[tuple[str, str, str], set[int]](set)
    for row in rows:
        wanted[row.record[:3]].add(row.position)
    each = ((place, opened[place[:2]].records(place[2], positions=sorted(of))) for place, of in wanted.items())
    return {(*place, record.position): record for place, records in each for record in records}


def origins_of(
    spec: Path, folder: Location, manifest: Manifest, records: Iterable[tuple[str, str | None]]
) -> dict[str, list[str]]:
    """Finds the places of rows in the sources, by key; takes keys and spans. Raises: UserError as `find_origins`."""
    check_extra("build", SOURCES)
    from recordmill.pipeline.build.build import source_files
    from recordmill.pipeline.build.results.row_origins import find_origins

    keys, found = defaultdict[bytes, list[str | None]](list), defaultdict[bytes, list[str]](list)
    for key, span in records:
        keys[as_key(key)].append(span)
    for stored, origin in find_origins(recordmill.load_spec(str(spec)), folder, manifest, keys, source_files()):
        found[stored].append(str(origin))
    none = [f"no row of the sources of {spec} any more"]
    return {stored.decode("utf-8", "surrogateescape"): found[stored] or none for stored in keys}
