"""Adopts TFRecord files that exist: reads each once, finds what is in it, and publishes a version that names them.

Nothing is moved or written but the version: its manifest, an index of 8 bytes a record, class names, and what was found
in each file. Files that stay the same cost nothing at the next adoption; a killed one goes on with the files done.
"""

import hashlib
import json
import logging
import math
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.adopt import files as listing
from recordmill.pipeline.adopt.assemble import Assembly
from recordmill.pipeline.adopt.features import IMAGE, KINDS
from recordmill.pipeline.adopt.files import MAX_SHARE, AdoptError, Adoption, ChangedError, Found, Said
from recordmill.pipeline.adopt.guess import STATED, Guessed, Guesser
from recordmill.pipeline.adopt.scanned import BYTES, FeatureFacts, OnPlan, Scanned, key_of, scan, scan_file, take_over
from recordmill.pipeline.compare.figures import Figure, breach_lines
from recordmill.pipeline.dataset.file_names import remember
from recordmill.pipeline.dataset.manifest import Json, Manifest
from recordmill.pipeline.dataset.paths import check_name
from recordmill.pipeline.errors import ExitCode, did_you_mean, listed
from recordmill.pipeline.json_values import check_types
from recordmill.pipeline.parallel import cores, in_order
from recordmill.pipeline.reader import wire
from recordmill.pipeline.reader.records import FrameWalk
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.sources.files import LocalFiles, StoreFiles
from recordmill.pipeline.versions import leases, publishing
from recordmill.pipeline.versions.base import Base, add_forgotten, places
from recordmill.pipeline.versions.build_folders import RUN, building_folder, remove_run
from recordmill.pipeline.versions.history import recorded
from recordmill.pipeline.versions.leases import OnWait
from recordmill.pipeline.versions.publishing import ROLLED_BACK, GateBreachedError, Published, undone
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.open_store import open_store

LOST, LEAST = 0.1, 100  # lost of so many live records, more hold a version back: the gate's `rows_lost` and `min_rows`
PARSED = ("FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature", "RaggedFeature")  # of tf.io
LeftOut: TypeAlias = Mapping[int, Mapping[int, wire.Lists | None]]  # by file, forgotten records with their lists


def adopt_files(
    adoption: Adoption, on_wait: OnWait = lambda _: None, on_plan: OnPlan = lambda size: lambda read: None
) -> Published:
    """Adopts files, and publishes a version unless nothing changed since the live one.

    Raises: AdoptError: a file is missing or no TFRecord, or the options do not fit the records. OutputError: the output
    cannot be written, or holds a built dataset.
    """
    store, files = open_store(adoption.output), StoreFiles(LocalFiles())
    found = listing.find(files, adoption.files, store.url)
    beside = listing.beside(files, found)
    sighting = _digest(adoption.options, [(each.split, *each.sighting) for each in found], sorted(beside.items()))
    if done := _same(sighting, found, Base.read(adoption.output, adoption.dataset, is_adopted=True)):
        return done
    inside = [each for each in found if "://" not in each.root and not os.path.isabs(each.root)]
    own = {os.path.normpath(os.path.join(each.root, each.name)).split("/")[0] for each in inside}
    publishing.check_output(adoption.output, own)
    store.check_conditions()
    with recorded(store.url, "adopt", "") as changes, leases.hold(store, leases.BUILD, on_wait) as lease:
        base = Base.read(adoption.output, adoption.dataset, is_adopted=True)
        if done := _same(sighting, found, base):
            return done
        work = Path(building_folder(store.url), _digest(adoption.output)[:16], f"{RUN}adopt")
        work.mkdir(parents=True, exist_ok=True)
        scanned = list(_scan(adoption, files, found, base, work, on_plan))
        for each in sorted({*found} ^ {*listing.find(files.again(), adoption.files, store.url)}):
            raise ChangedError(f"{each.info.path} changed while files were read: adopt again when nothing writes them")
        said = {name: files.read(file.path) for name, file in beside.items()}
        base, left_out = _forgotten(files, scanned, base, adoption.key)
        manifest, guessed = _assemble(adoption, scanned, said, base, left_out, work / "version")
        if why := _too_many(adoption, scanned, manifest):
            changes["rejects"] = manifest.rejects["by_reason"]
            raise TooManyLeftOutError(why)
        manifest = replace(manifest, gate=_gate(base, manifest))
        breaches, key = breach_lines(manifest.gate) + undone(base, manifest), manifest.build_key
        earlier = publishing.find_version(store.url, manifest.source_key, lambda each: each.build_key == key)
        if earlier is None:
            manifest = publishing.publish(base, str(work / "version"), manifest, lease, live=not breaches)
        else:
            manifest = earlier
            if not breaches:
                publishing.make_live_again(base, manifest)
        with suppress(OutputError):  # the next adoption is only slower
            publishing.remember_same(store.url, manifest.version, sighting)
        remember(store.url, {each.root for each in found})
        remove_run(work)
        if manifest.version != base.version:
            changes |= {"version": manifest.version, "live_after": base.version if breaches else manifest.version}
            changes |= {"rejects": manifest.rejects["by_reason"], "held_back": breaches}
    return Published.of(base, manifest, breaches, is_new=earlier is None, notes=guessed.notes)


class TooManyLeftOutError(AdoptError):
    """More records are left out than the limit allows."""

    exit_code = ExitCode.REJECTS


def _too_many(adoption: Adoption, scanned: Sequence[Scanned], manifest: Manifest) -> str:
    """Says which records cannot be read if their share, with that of lost bytes, is over the limit; else empty."""
    read, sizes = manifest.rows["read"], [each.found.info.bytes for each in scanned]
    lost = sum(sizes) - sum(int(each.offsets[-1]) for each in scanned)
    share = manifest.rows["rejected"] / max(1, read) + lost / max(1, sum(sizes))
    if share <= adoption.max_share:
        return ""
    reasons = ", ".join(f"{reason}: {records:,}" for reason, records in manifest.rejects["by_reason"].items())
    what = f"{manifest.rows['rejected']:,} of {read:,} records cannot be read ({reasons}; {lost:,} bytes are lost)"
    ways = "mend the files, state the features, or raise the limit"
    return f"{what}, together {share:.1%}; `max_share` allows {adoption.max_share:.1%}: {ways}"


def _gate(base: Base, manifest: Manifest) -> Json:
    """Returns the manifest's `gate`: the share of the live version's records that the new one lacks."""
    if base.live is None:
        return {}
    before, after = (each.rows["written"] + each.rows.get("forgotten", 0) for each in (base.live, manifest))
    share, limit = max(0.0, 1 - after / max(1, before)), LOST if before >= LEAST else None
    lost = Figure("rows_lost", "all", share, f"{before:,} → {after:,} records", limit=limit)
    breaches = [lost.to_json()] if lost.is_breach else []
    return {"live": base.version, "figures": {lost.rule: {lost.subject: share}}, "breaches": breaches}


def _same(sighting: str, found: Sequence[Found], base: Base) -> Published | None:
    """Returns the live version if it is known to be of these files and options."""
    latest, live = base.latest, base.live
    if latest is None or live is None or base.holds_forgotten_rows or base.missing or sighting not in latest.same:
        return None
    remember(base.output, {each.root for each in found})
    return Published.of(base, live, is_new=False)


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _assemble(
    adoption: Adoption, scanned: Sequence[Scanned], said: Mapping[str, bytes], base: Base, left_out: LeftOut, into: Path
) -> tuple[Manifest, Guessed]:
    facts = dict[str, FeatureFacts]()
    for name, some in chain.from_iterable(each.facts.items() for each in scanned):
        facts.setdefault(name, FeatureFacts()).add(some)
    counts = Counter[tuple[tuple[str, str], ...]]()
    for each in scanned:
        numbers = np.bincount(each.groups[:, 1], minlength=len(each.layouts)).tolist()
        counts.update({tuple(layout.items()): n for layout, n in zip(each.layouts, numbers, strict=False)})
    layouts = [(dict(layout), records) for layout, records in counts.items()]
    guesser = Guesser(facts, layouts, said, adoption.key)
    stated, label = adoption.features, adoption.label
    if stated is None:
        guessed = guesser.guess(label)
    elif not any(isinstance(given, Mapping) for given in stated.values()):
        guessed = _as_parsed(guesser, stated, label)
    else:
        guesser.guessed.label = label
        for name, given in stated.items():
            check_name("feature", name)
            kind = given.get("kind") if isinstance(given, Mapping) else given
            if not isinstance(given, Mapping) or not isinstance(kind, str) or kind not in KINDS:
                what = f"'{name}' has the kind {cut(repr(kind))}: adoption reads {', '.join(KINDS)}"
                raise AdoptError(f"{what}; a build with `source: {{format: adopted}}` makes the other kinds")
            guesser.add(name, given)
        guessed = guesser.guessed
    if label is not None and label not in guessed.read:
        near = did_you_mean(label, guessed.read)
        raise AdoptError(f"the records have no feature '{cut(label)}'{near}; they have: {listed(guessed.read)}")
    shutil.rmtree(into, ignore_errors=True)
    manifest = Assembly(adoption, scanned, guessed, base.forgotten, left_out, into).assemble()
    if not manifest.records:
        faults = [fault[1] for layout, _ in layouts if (fault := guessed.reject(layout, adoption.key)) is not None]
        why = [*faults, *guessed.notes, "all are damaged, or there are none"][0]
        held = sorted({name for layout, _ in layouts for name in layout if name})
        raise AdoptError(f"no record can be read: {why}" + (f"; the records hold: {listed(held)}" if held else ""))
    return manifest, guessed


def _forgotten(files: StoreFiles, scanned: Sequence[Scanned], base: Base, key: str | None) -> tuple[Base, LeftOut]:
    """Finds forgotten records, and lists them as their files are now."""
    if not base.forgotten.keys:
        return base, {}
    store, known = open_store(base.output), places(base.live)
    names, digests = ({file[column] for file in known} for column in (0, 1))
    new = {(each.found.name, each.sha256, each.records) for each in scanned if each.found.name not in names}
    gone, left_out, keys = add_forgotten(store, (), [*known, *new]), dict[int, dict[int, Any]](), set[bytes]()
    for at, each in enumerate(scanned):
        of_place = (record for record in range(each.records) if gone.holds(f"{each.sha256}:{record}".encode()))
        found = {record: each.read(files, record) for record in of_place}
        if each.sha256 not in digests or key is not None or base.holds_forgotten_rows:  # by keys and contents, too
            with files.open(each.found.info.path) as opened:
                walk = FrameWalk(cast(BufferedReader, opened), each.found.info.bytes, None, lambda *_: None)
                for record, data in (both for batch in walk.batches() for both in zip(*batch[::2], strict=True)):
                    stored = key_of(scan(data), key) if key is not None else None
                    if gone.holds(wire.content_of(data)) or (stored and gone.holds(stored)):
                        found[record] = bytes(data)
        for record, data in found.items():
            keys |= {f"{each.sha256}:{record}".encode(), wire.content_of(data)}
            left_out.setdefault(at, {})[record] = scan(data)
    return replace(base, forgotten=add_forgotten(store, keys)), left_out


def _scan(
    adoption: Adoption, files: StoreFiles, found: Sequence[Found], base: Base, work: Path, on_plan: OnPlan
) -> Iterator[Scanned]:
    """Reads the files, several at once; takes over those that the live version or a killed adoption has read."""
    way = listing.FORMAT, adoption.key, dict(adoption.splits)
    paths = {each: work / _digest(*way, each.sighting)[:32] for each in found}
    left = {each for each, path in paths.items() if not take_over(base, path)}
    on_bytes = on_plan(sum(each.info.bytes for each in left))

    def of(each: Found) -> Scanned:
        if each in left:
            scan_file(files, each, paths[each], adoption.key, adoption.splits, on_bytes)
        return Scanned.of(paths[each], each)

    at_once = 8 if any("://" in each.root for each in found) else cores()  # a bucket is mostly waited for
    yield from in_order(of, found, at_once)


def read_features(path: str) -> dict[str, Any]:
    """Reads the `features` of a YAML file, as `recordmill adopt` prints them. Raises: AdoptError: it has none."""
    from recordmill.pipeline.yaml_document import load_yaml  # PyYAML, which a training machine lacks

    text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")  # YAML refuses what is not UTF-8
    features = load_yaml(text, path, "`features:`").value.get("features")
    if not isinstance(features, dict) or not features:
        raise AdoptError(f"{path} has no `features`: write them as `recordmill adopt` prints them")
    return {name: with_classes(given, Path(path).parent) for name, given in features.items()}


def with_classes(given: Any, folder: Path = Path()) -> Any:
    """Returns a feature's words with the names in its `classes_file`, relative to a folder. Raises: AdoptError."""
    if not isinstance(given, Mapping) or "classes_file" not in given or "classes" in given:
        return given
    try:
        names = (folder / str(given["classes_file"])).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise AdoptError(f"a `classes_file` cannot be read: {cut(str(error))}") from None
    return {option: value for option, value in given.items() if option != "classes_file"} | {"classes": names}


def _as_parsed(guesser: Guesser, features: Mapping[str, Any], label: str | None) -> Guessed:
    """Reads features of `tf.io` by the records' names: `FixedLenFeature`, `VarLenFeature`, `RaggedFeature`."""
    for name, given in features.items():
        form, column = type(given).__name__, getattr(given, "value_key", None) or name
        held = guesser.held.get(column)
        if held is None or form not in PARSED or getattr(given, "partitions", None):
            what = f"as {cut(form)}: of tf.io adoption reads {listed(PARSED)}" if held else "which no record holds"
            raise AdoptError(f"'{cut(name)}' reads '{cut(column)}', {what}; the records hold: {listed(guesser.held)}")
        dtype = {"string": BYTES}.get(given.dtype.name, given.dtype.name)
        if dtype != held.stored:
            raise AdoptError(f"'{cut(name)}' is stated as {dtype}, the records hold {held.stored}")
        outer = () if form == "FixedLenFeature" else (None,)
        shape: tuple[int | None, ...] = (*outer, *(given.shape if hasattr(given, "shape") else ()))
        if form == "FixedLenFeature":
            if held.lacking and given.default_value is None:
                lacking = f"{held.lacking:,} records lack it"
                raise AdoptError(f"'{cut(name)}' has no `default_value`, and {lacking}: give one")
            if (held.facts.fewest, held.facts.most) != (size := math.prod(given.shape), size):
                states = f"'{cut(name)}' states {size} values a record"
                raise AdoptError(f"{states}, the records hold {held.counts}: take a VarLenFeature")
            if given.default_value or held.kind != IMAGE:  # an image is blank
                guesser.present(column, given.default_value)
        elif getattr(given, "default_value", None):
            raise AdoptError(f"'{cut(name)}' has a `default_value`, and lists are padded with 0: leave it out")
        guesser.said[column] = Said(STATED, shape, "", "none")
    guesser.keep({getattr(given, "value_key", None) or name for name, given in features.items()})
    return guesser.guess(label)


Globs: TypeAlias = str | Path | Sequence[str | Path]


def open_tfrecords(
    files: Globs | Mapping[str, Globs],
    index: str | Path,
    *,
    features: Mapping[str, Any] | None = None,
    label: str | None = None,
    key: str | None = None,
    splits: Mapping[str, float] | None = None,
    name: str | None = None,
    max_share: float = MAX_SHARE,
) -> Dataset:
    """Opens TFRecord files in place; the first time, and after changes, reads the new ones once.

    What was guessed, left out or lost goes to the log `recordmill` as warnings, when files are read.

    Args:
        files: files, folders, globs or URLs, by split: `{"train": "old/train-*"}`. Without splits, by the files' names.
        index: a folder or URL for the dataset's description, about 8 bytes a record; the files stay as they are.
        features: in a spec's words, `{"image": {"kind": "image", "column": "image/encoded"}}`; or TensorFlow's parsing
            options by the records' names, `{"image/encoded": tf.io.FixedLenFeature([], tf.string)}`. None: found.
        label: the feature to predict; None: found.
        key: the records' feature with their keys; None: a key is the file and the record's number.
        splits: shares by which the keys' hashes divide the files: `{"train": 90, "validation": 10}`.
        name: the dataset's name; None: of the last part of `index`.
        max_share: the largest share of records that may be left out.

    Returns:
        The dataset, as `open_dataset` gives.

    Raises:
        UserError: a file is missing, compressed or no TFRecord; the features do not fit; too many records are left out
            or lost; or `index` cannot be written.
    """
    check_types(locals(), open_tfrecords.__annotations__)
    given = files if isinstance(files, Mapping) else {"": files}
    lists = {split: [some] if isinstance(some, str | Path) else some for split, some in given.items()}
    globs = {split: list(map(str, some)) for split, some in lists.items()}
    stated = None if features is None else {each: with_classes(words) for each, words in features.items()}
    done = adopt_files(Adoption(globs, str(index), stated, label, key, splits or {}, name, max_share))
    if done.breaches not in ((), (ROLLED_BACK,)):
        raise GateBreachedError(done.reason(str(index)), done)
    log, reasons = logging.getLogger("recordmill"), done.manifest.rejects.get("by_reason", {}).items()
    for note in done.notes:
        log.warning("%s", note)
    for reason, records in reasons if done.exit_code is ExitCode.PUBLISHED else ():
        log.warning("%d records are left out: %s", records, reason)
    return open_dataset(index, files=[glob for some in globs.values() for glob in some])


adopt = open_tfrecords
"""The command's name: `adopt("old/*.tfrecord", "out/old")`."""
