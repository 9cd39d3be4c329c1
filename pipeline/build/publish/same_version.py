"""Finds a version that a build would only repeat: an earlier one of its key, or the live one of the same bytes."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.build.base.live_analysis import ANALYSIS, continues, graph_digest, names_to_keep
from recordmill.pipeline.build.inputs.input_table import INPUTS_FILE
from recordmill.pipeline.build.plan.plan import BuildPlan
from recordmill.pipeline.build.plan.under_way import Build
from recordmill.pipeline.compare.figures import breach_lines
from recordmill.pipeline.compare.gate import gate_entry
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.facts.sidecars import SIDECARS
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.publishing import Published, undone

GRAPHS = ("saved_model.pb", "fingerprint.pb")
"""Files excluded from the comparison: TensorFlow numbers a graph's functions after those of the same process."""


@dataclass(frozen=True)
class EarlierVersions:
    """The versions of an output that a plan would only repeat."""

    build: Build
    plan: BuildPlan

    def take(self) -> Published | None:
        """Judges the newest one, and makes it live if nothing breaches the gate; None if it is to be built."""
        build, base, version = self.build, self.build.base, self.find()
        if version is None or build.repeats(version):
            return None
        breaches = breach_lines(gate_entry(self.plan.spec, base, base.folder_of(version.version), version))
        breaches += undone(base, version)
        if not breaches:
            publishing.make_live_again(base, version)
            build.remember(version, self.plan.source_key, build.listing_key)
        return Published.of(base, version, breaches, is_new=False)

    def find(self) -> Manifest | None:
        """Finds the newest whole version of the plan's inputs, graph and ids."""
        return publishing.find_version(self.build.output, self.plan.rows_key, self._fits)

    def _fits(self, version: Manifest) -> bool:
        """Whether a version has the plan's spans, its graph (inherited or own), and the live version's ids."""
        plan, is_own = self.plan, ANALYSIS not in version.provenance
        if version.spans.keys() != plan.spans.spans.keys():
            return False
        if not (is_own if plan.frozen is None else graph_digest(version) == plan.frozen.digest):
            return False
        with suppress(UserError):  # a build never goes back to a damaged version
            folder = self.build.base.folder_of(version.version)
            names = names_to_keep(plan.spec, folder, version)
            return self.build.holds(folder, plan) and continues(names, plan.given.inherited.names)
        return False


def same_as_live(base: Base, manifest: Manifest) -> bool:
    """Whether an assembled version has the content of the live one, which then stays live."""
    live = base.live
    with suppress(UserError):  # of a damaged live version: publish
        return live is not None and _content(live) == _content(manifest) and not base.missing
    return False


def _content(manifest: Manifest) -> dict[str, Any]:
    """Returns the digests of shards and files, the manifest's description of the data, and the origins of graphs."""
    shards = {name: split.shards for name, split in manifest.splits.items()}
    others = {INPUTS_FILE, *SIDECARS, *(path for path in manifest.files if path.endswith(GRAPHS))}
    made_by, spec = manifest.provenance, manifest.spec
    return {
        "described": (manifest.name, manifest.label, manifest.features, manifest.statistics, manifest.duplicates),
        "rows": (manifest.rows, manifest.rejects),
        "labels": {name: split.label_counts for name, split in manifest.splits.items()},
        "shards": {name: [(each.span, each.records, each.sha256) for each in some] for name, some in shards.items()},
        "files": {path: entry["sha256"] for path, entry in manifest.files.items() if path not in others},
        "graph": [made_by.get("packages"), made_by.get("user_code"), spec.get("features"), spec.get("preprocessing")],
    }
