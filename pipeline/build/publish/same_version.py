"""Finds a version that a build would only make again: an earlier one of its key, or the live one of its bytes."""

from contextlib import suppress
from typing import Any

from recordmill.pipeline.build.base.live_analysis import ANALYSIS, continues, graph_digest, names_to_keep
from recordmill.pipeline.build.inputs.input_table import INPUTS_FILE
from recordmill.pipeline.build.outcome import ROLLED_BACK, Published
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.build.plan.under_way import Build
from recordmill.pipeline.compare.gate import breach_lines, gate_entry
from recordmill.pipeline.dataset.manifest import Latest, Manifest, version_folder
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.facts.sidecars import SIDECARS
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base, awaits_approval, is_rolled_back
from recordmill.pipeline.versions.stores.open_store import open_location, open_store

GRAPHS = ("saved_model.pb", "fingerprint.pb")
"""Files whose bytes are not compared: TensorFlow numbers the functions of a graph by the process' earlier ones."""


def earlier_version(build: Build, plan: BuildPlan) -> Published | None:
    """Makes the version of an equal earlier build live; None without one, or if it is to be repeated.

    The gate compares it with the live one first: it may be held back, rolled back, or be the data of long ago.
    """
    base = build.base
    version = find_version(build, plan)
    if version is None or build.repeats(version):
        return None
    folder = version_folder(open_location(base.output), version.version)
    if version.trial:
        return Published(str(folder), version, is_new=False, went_live=False)
    breaches = breach_lines(gate_entry(plan.spec, base, folder, version)) + undone(base, version)
    if not breaches:

        def choose(latest: Latest | None) -> Manifest:
            base.check(latest)
            return version

        publishing.make_live(open_store(base.output), choose)
        build.remember(version, plan.source_key, build.listing_key)
    return Published(
        str(folder),
        version,
        is_new=False,
        went_live=not breaches and version.version != base.version,
        was_live=not awaits_approval(base.latest, version),
        before=base.version,
        breaches=breaches,
    )


def find_version(build: Build, plan: BuildPlan) -> Manifest | None:
    """Finds the newest version of the same spec and inputs in which every name has the id of the live version.

    Its graph is the one that is taken over, or was learned from its own rows.
    """

    def fits(version: Manifest) -> bool:
        if version.spans.keys() != plan.spans.spans.keys():
            return False
        is_own = ANALYSIS not in version.provenance
        if not (is_own if plan.frozen is None else graph_digest(version) == plan.frozen.digest):
            return False
        with suppress(UserError):  # a build never goes back to a damaged version
            folder = version_folder(open_location(build.output), version.version)
            names = names_to_keep(plan.spec, folder, version)
            return build.holds(folder, plan) and continues(names, plan.given.inherited.names)
        return False

    return publishing.find_version(build.output, plan.rows_key, fits)


def undone(base: Base, version: Manifest) -> tuple[str, ...]:
    """Returns a line where a version would undo a person's rollback."""
    return (ROLLED_BACK,) if is_rolled_back(base.latest, version) else ()


def same_as_live(base: Base, manifest: Manifest) -> bool:
    """Whether an assembled version holds what the live one holds, which then stays: no reader needs both."""
    live = base.live
    with suppress(UserError):  # a damaged version is no reason to publish none
        return live is not None and _content(live) == _content(manifest) and not base.missing
    return False


def _content(manifest: Manifest) -> dict[str, Any]:
    """Returns the digests of shards and files, what the manifest says of the data, and what its graphs follow from."""
    return {
        "described": (manifest.name, manifest.label, manifest.features, manifest.statistics, manifest.duplicates),
        "rows": (manifest.rows, manifest.rejects),
        "splits": {
            name: ([(shard.span, shard.records, shard.sha256) for shard in split.shards], split.label_counts)
            for name, split in manifest.splits.items()
        },
        "files": {
            path: entry["sha256"]
            for path, entry in manifest.files.items()
            if path not in {INPUTS_FILE, *SIDECARS} and not path.endswith(GRAPHS)
        },
        "graph": [manifest.provenance.get(what) for what in ("packages", "user_code")]
        + [manifest.spec.get(what) for what in ("features", "preprocessing")],
    }
