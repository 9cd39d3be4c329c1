"""A way that values go: what runs over the table, and what a kind cannot do there, with the reason."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from tests.table.case import Case
from tests.table.values import CASES as VALUES
from tests.table.world import CASES, SPECS, Table

Found = Mapping[str, str]
"""The outcome of a way for each case: "" if it is right, `refused: …` for a refusal, else the differences."""
REFUSED = "refused: "
BY_DAY = ("main", "label", "windows", "packs")


class World:
    """The datasets of the table, each written and built when a way first asks for it."""

    def __init__(self, folder: Path, *, whole: bool) -> None:
        """Takes a folder; a day goes with the cases of values and the typical ones, a night with the `whole` table."""
        self.folder, self.whole = folder, whole
        self.of = cache(self._of)

    def table(self) -> Table:
        """Returns the dataset of most cases."""
        return self.of("main")

    def _of(self, dataset: str) -> Table:
        cases = {name: case for name, case in CASES.items() if case.dataset == dataset}
        if not self.whole and dataset == "main":
            cases = {name: case for name, case in cases.items() if name in self.typical or name in VALUES}
        return Table(self.folder / dataset, cases, **SPECS[dataset])

    @property
    def tables(self) -> Iterator[Table]:
        """All datasets in turn, or those of a day."""
        return map(self.of, SPECS if self.whole else BY_DAY)

    @cached_property
    def typical(self) -> Mapping[str, Case]:
        """The first case of each kind and of each set of parts, with the features that it names: for costly ways."""
        main = {name: case for name, case in CASES.items() if case.dataset == "main"}
        first = {
            (case.kind, *case.read, case.feature.get("optional"), case.feature.get("normalize") == "dataset"): name
            for name, case in reversed(main.items())
        }
        chosen: dict[str, Case] = {}
        for name in first.values():
            chosen |= dict.fromkeys(_with_named(name, main))
        return {name: case for name, case in main.items() if name in chosen}

    @cached_property
    def built(self) -> Table:
        """The typical cases, built once for ways that change nothing there."""
        return self.again("built")

    def again(self, name: str, **spec: object) -> Table:
        """Writes a dataset of the typical cases; `spec` holds other options."""
        return Table(self.folder / name, self.typical, **spec)


def _with_named(name: str, cases: Mapping[str, Case]) -> Iterator[str]:
    """Yields a case and those that its options name."""
    yield name
    options = cases[name].feature
    shared = options.get("vocabulary")
    named = [options.get("image"), options.get("text"), *options.get("cross", ())]
    named += [shared.get("shared_with")] if isinstance(shared, dict) else []
    for other in named:
        if other in cases:
            yield from _with_named(other, cases)


@dataclass(frozen=True)
class Way:
    """A row of the page: what runs, and by kind when a line refuses a feature or why no value goes this way."""

    title: str
    run: Callable[[World], Found]
    refused: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    mark: str | None = None
    """The marker of what a day does not run: `nightly`, or `frameworks`."""


WAYS: dict[str, Way] = {}
"""All ways, in the order of the page."""


def way(title: str, **more: object) -> Callable[[Callable[[World], Found]], Callable[[World], Found]]:
    """Adds the decorated function to the ways."""

    def add(run: Callable[[World], Found]) -> Callable[[World], Found]:
        WAYS[run.__name__] = Way(title, run, **more)  # type: ignore[arg-type]
        return run

    return add


def judged(cases: Iterable[str], lines: Iterable[str]) -> Found:
    """Sorts lines by the case at their beginning; a line of no case is everybody's."""
    found = dict.fromkeys(cases, "")
    for line in lines:
        name = line.partition(":")[0]
        for each in [name] if name in found else found:
            found[each] += f"\n{line}"
    return found


def of_all(world: World, wrong: Callable[[Table], Iterable[str]]) -> Found:
    """Judges each dataset by the lines that a function yields for it."""
    return {name: said for table in world.tables for name, said in judged(table.cases, wrong(table)).items()}
