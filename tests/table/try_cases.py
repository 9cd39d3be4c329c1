"""Builds cases and prints what is wrong: `python -m tests.table.try_cases number text_`, by beginnings of names."""

import sys
import tempfile
from pathlib import Path

from tests.table.reading import by_key, records, wrong_descriptions, wrong_records, wrong_rejects, wrong_values
from tests.table.world import CASES, SPECS, SPLITS, Table


def main(*beginnings: str) -> None:
    """Builds the cases; prints a line for each difference from what the cases say."""
    chosen = {name: case for name, case in CASES.items() if name.startswith(beginnings)}
    for dataset in dict.fromkeys(case.dataset for case in chosen.values()):
        cases = {name: case for name, case in chosen.items() if case.dataset == dataset}
        print(f"{dataset}: {len(cases)} cases")
        with tempfile.TemporaryDirectory() as scratch:
            table = Table(Path(scratch) / "table", cases, **SPECS[dataset])
            folder = table.published.folder
            lines = [*wrong_rejects(cases, folder), *wrong_records(cases, records(folder))]
            lines += wrong_descriptions(cases, table.dataset.features)
            for split in SPLITS:
                given = table.dataset.evaluation_input(split, batch_size=6, with_key=True)
                lines += wrong_values(cases, by_key(given.as_numpy(), SPECS[dataset].get("label")), padded=True)
        print(*lines, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
