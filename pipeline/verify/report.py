"""What a verification says: a line for each problem, a summary of what was checked and what was not; or JSON.

>>> for line in Report(manifest, "out/emoji/versions/…", found, seconds=0.8).lines():  # doctest: +SKIP
...     print(line)
emoji-train.tfrecord-00000-of-00004, record 7 at byte 1,234: the checksum of its data (310 bytes) is wrong
checked 31 files, 12 shards, 10,000 records, 71 MB in 0.8 s, 89 MB/s
not checked: …
emoji 20261120T120000Z-4f1c9a2e: 1 problem in 1 file
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.terminal_text import printable
from recordmill.pipeline.verify.findings import Findings

_COUNTED = {
    "files": "files",
    "shards": "shards",
    "records": "records",
    "operations": "operations of graphs",
    "rows": "raw rows served and read",
}
"""What is counted, in the order in which it is told, and its name."""


@dataclass(frozen=True)
class Report:
    """The outcome of a verification."""

    manifest: Manifest
    folder: str
    found: Findings
    seconds: float
    repaired: tuple[str, ...] = ()
    """The files that `--repair` replaced."""
    unrepaired: tuple[str, ...] = ()
    """What it could not replace, and why."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.found.told

    @property
    def megabytes_per_second(self) -> float:
        """How fast the bytes were read and checked."""
        return self.found.checked["bytes"] / 1e6 / max(self.seconds, 1e-9)

    def lines(self) -> Iterator[str]:
        """Gives the report for people."""
        yield from map(str, self.found.problems)
        for file, count in self.found.unnamed.items():
            yield f"{printable(file)}: and {count:,} more"
        checked = [
            f"{self.found.checked[what]:,} {name}" for what, name in _COUNTED.items() if self.found.checked[what]
        ]
        size, speed = self.found.checked["bytes"] / 1e6, self.megabytes_per_second
        yield f"checked {', '.join(checked)}; {size:,.1f} MB in {self.seconds:.1f} s, {speed:,.0f} MB/s"
        yield from (f"not checked: {what}" for what in self.found.unchecked)
        yield from (f"repaired: {file}" for file in self.repaired)
        yield from (f"not repaired: {what}" for what in self.unrepaired)
        yield printable(f"{self.manifest.name} {self.manifest.version}: {self._verdict()}")

    def _verdict(self) -> str:
        problems, files = sum(self.found.told.values()), len(self.found.told)
        if not problems:
            return "all is as the manifest says"
        return f"{problems:,} problem{'s' * (problems > 1)} in {files:,} file{'s' * (files > 1)}"

    def to_json(self) -> dict[str, Any]:
        """Gives the report for programs."""
        return {
            "name": self.manifest.name,
            "version": self.manifest.version,
            "folder": self.folder,
            "is_whole": self.is_whole,
            "problems": [problem.to_json() for problem in self.found.problems],
            "unnamed": self.found.unnamed,
            "checked": dict(sorted(self.found.checked.items())),
            "not_checked": self.found.unchecked,
            "repaired": list(self.repaired),
            "not_repaired": list(self.unrepaired),
            "seconds": round(self.seconds, 3),
            "megabytes_per_second": round(self.megabytes_per_second, 1),
        }
