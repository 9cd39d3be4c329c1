"""The outcome of a build or an adoption: a version, live or held back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import ExitCode, UserError
from recordmill.pipeline.versions.base import Base, awaits_approval, is_rolled_back
from recordmill.pipeline.versions.publishing import version_path

ROLLED_BACK = "a version of the same inputs was rolled back"  # the line of a version that would undo a person's act


def undone(base: Base, version: Manifest) -> tuple[str, ...]:
    """Returns a line for the user if a version would undo a person's rollback."""
    return (ROLLED_BACK,) if is_rolled_back(base.latest, version) else ()


@dataclass(frozen=True)
class Published:
    """The version that a build or an adoption made or found."""

    folder: str
    """Its path or URL."""
    manifest: Manifest
    is_new: bool
    """Whether this call made the version."""
    went_live: bool = True
    """Whether `LATEST` moved to the version; False if it was already live or is held back."""
    was_live: bool = False
    """Whether the version was live earlier: a rollback makes it live, not an approval."""
    before: str | None = None
    """The live version before, if any."""
    breaches: tuple[str, ...] = ()
    """A line for each breached limit of the gate, and for a rollback; any holds the version back."""
    built_spans: tuple[str, ...] = ()
    """The spans that this build read."""
    kept_spans: tuple[str, ...] = ()
    """The spans that it kept."""
    notes: Sequence[str] = ()
    """Lines on guesses, losses and features left out by an adoption."""

    @classmethod
    def of(cls, base: Base, manifest: Manifest, breaches: tuple[str, ...] = (), **more: Any) -> "Published":
        """Makes the outcome of a version compared with the live one, which may be itself."""
        return cls(
            version_path(base.output, manifest.version),
            manifest,
            went_live=not breaches and manifest.version != base.version,
            was_live=not awaits_approval(base.latest, manifest),
            before=base.version,
            breaches=breaches,
            **more,
        )

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        if self.breaches:
            return ExitCode.GATE
        return ExitCode.PUBLISHED if self.went_live else ExitCode.UP_TO_DATE

    def reason(self, output: str) -> str:
        """Says why the version is held back, and the remedies; a line for each breach."""
        version = self.manifest.version
        again = "" if self.is_new else "; it was built before, and nothing was built again"
        breaches = "".join(f"\n  {line}" for line in self.breaches)
        given = output if self.is_new else f"{output} {version}"  # its manifest may name another comparison
        ways = f"`recordmill versions approve {given}` makes it live, `recordmill versions reject {given}` removes it"
        if self.was_live:
            ways = f"`recordmill versions rollback {given}` makes it live again"
        if self.breaches == (ROLLED_BACK,):
            return f"{version} is held back: {ROLLED_BACK}, and {self.before} stays live{again}\n{ways}"
        limits = "" if self.manifest.adopted else "; the limits are `gate` in the spec"
        held = f"the gate holds {version} back: it differs too much from {self.before}, which stays live"
        return f"{held}{again}{breaches}\n{ways}{limits}"


class GateBreachedError(UserError):
    """The version is complete but not live: it differs too much from the live one."""

    exit_code = ExitCode.GATE

    def __init__(self, message: str, published: Published) -> None:
        super().__init__(message)
        self.published = published
        """The version's folder and manifest."""
