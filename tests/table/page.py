"""Makes `docs/kinds.md` from the table: `python -m tests.table.page`."""

from collections.abc import Iterator
from pathlib import Path

from tests.table import images, texts, values, ways_of_building, ways_of_reading, ways_of_texts, ways_of_using  # noqa: F401 - they add their ways
from tests.table.ways import WAYS

PAGE = Path(__file__).parents[2] / "docs/kinds.md"
FAMILIES = {"Images": images.CASES, "Texts": texts.CASES, "Values": values.CASES}
HEAD = """# What each kind can do

Each cell is tested, for every option of the kind, against values written by hand or by the format's own library.
✓: gives these values. A number: see the notes.
"""


def page() -> str:
    """Returns the page: a table for each family, and the notes."""
    notes: dict[str, int] = {}
    tables = [line for title, cases in FAMILIES.items() for line in _table(title, cases, notes)]
    said = (f"{number}. {note}" for note, number in notes.items())
    return "\n".join([HEAD, *tables, *(["## Notes", "", *said, ""] if notes else [])])


def _table(title: str, cases: dict[str, object], notes: dict[str, int]) -> Iterator[str]:
    kinds = list(dict.fromkeys(case.kind for case in cases.values()))  # type: ignore[attr-defined]
    yield from (f"## {title}", "", f"| | {' | '.join(f'`{kind}`' for kind in kinds)} |", f"|---{'|---' * len(kinds)}|")
    for way in WAYS.values():
        cells = []
        for kind in kinds:
            note = way.refused.get(kind, way.absent.get(kind))
            cells.append("✓" if note is None else str(notes.setdefault(note, len(notes) + 1)))
        yield f"| {way.title} | {' | '.join(cells)} |"
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
