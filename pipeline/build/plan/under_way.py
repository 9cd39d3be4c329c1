"""A build under way: the request, the base, and the listed inputs.

A build first compares the inputs with those of the live version, without TensorFlow and Beam. `LATEST` remembers a
listing by its `sighting_key`: the next build opens no file; and by its source key if a build uses only some files.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from recordmill.pipeline.build.base.live_analysis import ANALYSIS
from recordmill.pipeline.build.inputs.input_table import Listings, Remembered, take_times
from recordmill.pipeline.build.inputs.span_sources import digest_of, left_out, list_spans
from recordmill.pipeline.build.plan.keys import listing_key, sighting_key, spans_digest
from recordmill.pipeline.build.plan.plan import BuildPlan, make_plan
from recordmill.pipeline.build.run_options import CHUNK_BYTES, Listener, RunOptions
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base, source_key_of
from recordmill.pipeline.versions.publishing import Published

SHOWN = 3


@dataclass(frozen=True)
class Build:
    """A build under way: the request, and a snapshot of the output, read once."""

    spec: Spec
    output: str  # the dataset's folder, or its URL
    files: Listings
    options: RunOptions = RunOptions()
    listener: Listener = Listener()

    @cached_property
    def base(self) -> Base:
        """The state of the output. Raises: OutputError, as `Base.read`."""
        return Base.read(self.output, self.spec.name, is_adopted=False)

    @cached_property
    def done(self) -> Published | None:
        """The live version, if there is nothing to do; needs no lease."""
        options, live = self.options, self.base.live
        if live is None or options.spans or options.compact or options.limit is not None or self.repeats(live):
            return None
        if options.again or self.sighting not in self._known_keys:
            if not self._known_keys or self.remembered is None or self.listing_key not in self._known_keys:
                return None
            self.remember(live, self.sighting)
        for line in left_out(self.spec, self.files):
            self.listener.on_note(line)
        return self.live()

    def again(self) -> "Build":
        """Begins again: reads the output and lists the sources."""
        return replace(self, files=self.files.again())

    def plan(self, *, keeps_spans: bool = True) -> BuildPlan:
        """Plans the build; without `keeps_spans` all shards are new. Raises: as `make_plan`."""
        inputs = self.remembered.table if self.remembered else None
        return make_plan(self.spec, self.files, self.options, self.base, inputs, keeps_spans=keeps_spans)

    def repeats(self, version: Manifest) -> bool:
        """Whether `--again` applies to a version: some rows were rejected."""
        return bool(self.options.again and version.rejects.get("files"))

    def live(self) -> Published:
        """Returns the live version, unchanged."""
        live = self.base.live
        assert live is not None  # noqa: S101 - for mypy
        return Published.of(self.base, live, is_new=False)

    def remember(self, version: Manifest, *keys: str) -> None:
        """Notes in `LATEST` that inputs of these keys produce the live version: the next build plans nothing."""
        with suppress(UserError):  # the next build is only slower
            for key in {*keys} - {source_key_of(version), ""}:
                publishing.remember_same(self.output, version.version, key)

    @property
    def listing_key(self) -> str:
        """The source key of the listing; empty if it cannot be computed, or only some spans are listed."""
        return self._key(listing_key)

    @cached_property
    def sighting(self) -> str:
        """The `sighting_key`: files of other content have another."""
        return self._key(sighting_key)

    @cached_property
    def remembered(self) -> Remembered | None:
        """The inputs of the live version, if known; `files` then has the identity times of `take_times`."""
        spans, again = self.options.spans, self.options.again
        return take_times(self.spec, self.base.folder, self.files, spans, reads_all=again) if self.base.live else None

    def holds(self, folder: Location, plan: BuildPlan) -> bool:
        """Whether a version of the plan's key was built from the files' present content."""
        remembered = Remembered.read(folder, by_span=self.spec.has_templates)
        return remembered is None or not remembered.times(plan.inputs, self.files)  # of one key, identities are equal

    def _key(self, key: Callable[[Spec, Files], str]) -> str:
        with suppress(UserError, OSError):  # the plan says what is wrong
            return "" if self.options.spans else key(self.spec, self.files)
        return ""

    @cached_property
    def _known_keys(self) -> set[str]:
        """The source keys known to produce the live version; none if it must be rebuilt."""
        base, live = self.base, self.base.live
        if base.latest is None or live is None or base.holds_forgotten_rows:
            return set()
        if not self.spec.is_frozen and ANALYSIS in live.provenance:  # it did not learn from its own rows
            return set()
        with suppress(UserError):
            if not base.missing:
                return {source_key_of(live), *base.latest.same}
        return set()


class InputsChangedError(UserError):
    """The inputs changed since the build began; the message names some."""

    exit_code = ExitCode.TRY_AGAIN


def inputs_digest(plan: BuildPlan, files: Files) -> str:
    """Computes `BuildPlan.inputs_sha256` again, listing all except kept spans. Raises: SourceError."""
    if not plan.spec.has_spans:
        return digest_of(enumerate(each.planned(files, CHUNK_BYTES).inputs for each in plan.sources))
    return spans_digest(plan.spans.kept, plan.keys.of_spans(list_spans(plan.sources, files, again=True)))


def check_unchanged(plan: BuildPlan, files: Listings) -> None:
    """Checks that the inputs are still those of the plan. Raises: InputsChangedError."""
    changed = dict(files.changes())
    if not changed:
        return
    used = (group.of.reader.input_path(files)(file.path) for group in plan.inputs for file in group.files)
    with suppress(SourceError, OSError):
        if changed.keys().isdisjoint(used) and inputs_digest(plan, files.again()) == plan.inputs_sha256:
            return
    more = f", and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    named = ", ".join(f"{path} {changed[path]}" for path in sorted(changed)[:SHOWN])
    raise InputsChangedError(
        f"the inputs changed while they were read ({named}{more}): build again when nothing writes to them"
    )
