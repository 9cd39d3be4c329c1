"""A build under way: what was asked for, the base, and the inputs as they are listed.

A build begins by comparing the inputs with those of the live version: there may be nothing to do. The sources are
listed and not planned, so neither TensorFlow nor Beam is needed, and what may have changed is read. `LATEST` remembers
such a listing by its `sighting_key`, so that the next build opens nothing, and by its key where a build uses less.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from recordmill.pipeline.build.base.live_analysis import ANALYSIS
from recordmill.pipeline.build.inputs.input_table import Remembered
from recordmill.pipeline.build.inputs.listings import Listings
from recordmill.pipeline.build.inputs.span_sources import list_groups
from recordmill.pipeline.build.outcome import Published
from recordmill.pipeline.build.plan.keys import listing_key, sighting_key
from recordmill.pipeline.build.plan.plan import BuildPlan, inputs_digest, make_plan
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.dataset.manifest import Location, Manifest
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.sources.files import Files
from recordmill.pipeline.sources.source_reader import SourceError
from recordmill.pipeline.spec.model import Spec
from recordmill.pipeline.versions import publishing
from recordmill.pipeline.versions.base import Base, source_key_of


@dataclass(frozen=True)
class Build:
    """A build under way: what was asked for, and what it begins with, which is read once and then stays as it was.

    >>> build = Build(spec, "out/emoji", Listings(files))                   # doctest: +SKIP
    >>> published = build.done or make_version(build, build.plan(), lease)  # doctest: +SKIP
    """

    spec: Spec
    output: str
    """The dataset's folder, or its URL."""
    files: Listings
    """The sources' files, each with the time that stands for its content."""
    options: RunOptions = RunOptions()
    listener: Listener = Listener()

    @cached_property
    def base(self) -> Base:
        """The state of the output. Raises: OutputError, as `Base.read`."""
        return Base.read(self.output, self.spec.name)

    @cached_property
    def done(self) -> Published | None:
        """The live version, where there is nothing to do; needs no lease."""
        options, live = self.options, self.base.live
        if live is None or options.spans or options.compact or options.limit is not None or self.repeats(live):
            return None
        if options.again or self.sighting not in self._known_keys:
            if not self._known_keys or self.remembered is None or self.listing_key not in self._known_keys:
                return None
            self.remember(live, self.sighting)
        return self.live()

    def again(self) -> "Build":
        """Begins again, with the output and the sources as they are now."""
        return replace(self, files=self.files.again())

    def plan(self, *, keeps_spans: bool = True) -> BuildPlan:
        """Lays out the build; `keeps_spans` is False where shards of the live version's spans cannot stay.

        Raises:
            SourceError, SpanError, OutputError: as `make_plan`.
        """
        inputs = self.remembered.table if self.remembered else None
        return make_plan(self.spec, self.files, self.options, self.base, inputs, keeps_spans=keeps_spans)

    def repeats(self, version: Manifest) -> bool:
        """Whether a version is built again, since rows of it may be mended."""
        return bool(self.options.again and version.rejects.get("files"))

    def live(self) -> Published:
        """Returns the live version, which stays as it is."""
        assert self.base.live is not None  # noqa: S101 - for mypy
        live = self.base.live
        return Published(str(self.base.folder), live, is_new=False, went_live=False, before=live.version)

    def remember(self, version: Manifest, *keys: str) -> None:
        """Notes that inputs of these keys come to the live version, so that the next build has no plan to make."""
        with suppress(UserError):  # the next build is only slower
            for key in {*keys} - {source_key_of(version), ""}:
                publishing.remember_same(self.output, version.version, key)

    @property
    def listing_key(self) -> str:
        """The source key of the listing; empty where it cannot be computed, or only some spans are listed."""
        return self._key(listing_key)

    @cached_property
    def sighting(self) -> str:
        """The same of what this machine saw: no file of other content has it."""
        return self._key(sighting_key)

    @cached_property
    def remembered(self) -> Remembered | None:
        """The inputs of the live version, with which the listed ones were compared; None where it has none.

        Files that may have changed, all with `--again`, are compared by their content: from then on `files` gives them
        the time that stands for it.
        """
        if self.base.live is None:
            return None
        return take_times(self.spec, self.base.folder, self.files, self.options.spans, reads_all=self.options.again)

    def holds(self, folder: Location, plan: BuildPlan) -> bool:
        """Whether a version of the plan's key, in a folder, was built of the content that the files have now."""
        remembered = Remembered.read(folder, by_span=self.spec.has_templates)
        return remembered is None or not remembered.times(plan.inputs, self.files)  # of one key, identities are equal

    def _key(self, key: Callable[[Spec, Files], str]) -> str:
        with suppress(UserError, OSError):  # the plan says what is wrong
            return "" if self.options.spans else key(self.spec, self.files)
        return ""

    @cached_property
    def _known_keys(self) -> set[str]:
        """The source keys whose inputs come to the live version; none where it must be built again."""
        base, live = self.base, self.base.live
        if base.latest is None or live is None or base.holds_forgotten_rows:
            return set()
        if not self.spec.is_frozen and ANALYSIS in live.provenance:  # it did not learn from its own rows
            return set()
        with suppress(UserError):
            if not base.missing:
                return {source_key_of(live), *base.latest.same}
        return set()


def take_times(
    spec: Spec, folder: Location, files: Listings, only: Sequence[str] = (), *, reads_all: bool = False
) -> Remembered | None:
    """Sets the times that stand for contents, as a version remembers them; returns what it remembers, if anything.

    Only files of some spans are listed, where `only` names any; `reads_all` compares unchanged ones, too.
    """
    remembered = Remembered.read(folder, by_span=spec.has_templates)
    if remembered is not None:
        with suppress(UserError, OSError):  # the plan says what is wrong
            files.take(remembered.times(list_groups(spec, files, only), files, reads_all=reads_all))
    return remembered


SHOWN = 3


class InputsChangedError(UserError):
    """The inputs changed since the build began; the message names some."""

    exit_code = ExitCode.TRY_AGAIN


def check_unchanged(plan: BuildPlan, files: Listings) -> None:
    """Checks that a build of these inputs would still be the same. Raises: InputsChangedError: it would differ."""
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
