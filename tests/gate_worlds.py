"""Small datasets that get a day of rows each night, for the cases of the gate: goods with texts, and photos."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from recordmill import GateBreachedError, build, load_spec
from recordmill.pipeline.build.attempt.failures import TooManyRejectsError
from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.versions.acts import approve, reject, rollback
from tests.pictures import photo, saved

Rows = list[dict[str, Any]]
Change = Callable[[Rows], Rows]
TOO_MANY_REJECTS = "too_many_rejects"
"""The build ends with exit code 5, before the gate."""
FIRST, DAYS = date(2026, 3, 2), 16  # from a Monday to the Tuesday of the third week
SPECS = {
    "goods": """
features:
  label: {kind: category}
  price: {kind: number, optional: true}
  balance: {kind: number}
  stock: {kind: number, optional: true}
  city: {kind: category, minimum_count: 20}
  text: {kind: text, optional: true}
""",
    "photos": """
features:
  image: {kind: image, size: [8, 8], padding: [255, 255, 255], normalize: dataset}
  label: {kind: category}
""",
}
HEAD = """
name: NAME
source: {format: jsonl, path: 'data/{YYYY}-{MM}-{DD}/rows.jsonl'}
key: id
label: label
splits: {train: 9, test: 1}
analysis: ANALYSIS
rejects: {max_share: 0.5}
"""
CITIES = ["Paris", "Rome", "Oslo", "Berlin", "Madrid", "Lisbon", "Vienna", "Prague"]
WORDS = [f"{first}{last}" for first in ("ba", "co", "du", "fé", "gi", "lo") for last in "bcdfglmnprst"]
WORDS_OF = {"cat": ["purrs", "whiskers", "meows"], "dog": ["barks", "fetches", "leash"], "fox": ["den", "tail", "red"]}


def goods(day: date, rows: int = 0) -> Rows:
    """Makes the rows of a day: 800 more or less, 600 on weekends."""
    draw = np.random.default_rng(day.toordinal())
    rows = rows or int((600 if day.weekday() > 4 else 800) * draw.uniform(0.97, 1.03))
    labels = draw.choice(["cat", "dog", "fox"], rows, p=[0.48, 0.46, 0.06]).tolist()
    lengths, zipf = draw.integers(6, 15, rows), 1 / np.arange(1, len(WORDS) + 1)
    return [
        {
            "id": f"{day}/{row}",
            "label": label,
            "price": round(float(draw.lognormal(3, 0.8)), 2),
            "balance": round(float(draw.normal(8, 10)), 2),
            "stock": int(draw.integers(0, 50)) if draw.random() > 0.05 else None,
            "city": str(draw.choice(CITIES)),
            "text": " ".join([*draw.choice(WORDS, length, p=zipf / zipf.sum()), *draw.choice(WORDS_OF[label], 2)]),
        }
        for row, (label, length) in enumerate(zip(labels, lengths, strict=True))
    ]


def photos(day: date) -> Rows:
    """Makes the rows of a day: 180 photos, warm ones more or less bright."""
    draw = np.random.default_rng(day.toordinal())
    return [
        {"id": f"{day}/{row}", "label": str(draw.choice(["cat", "dog"])), "picture": _warm(draw)} for row in range(180)
    ]


def _warm(draw: np.random.Generator) -> Image.Image:
    light = draw.uniform(0.6, 1.1) * np.array([1.0, 0.8, 0.55])
    pixels = np.asarray(photo(int(draw.integers(90)), (40, 30))) * light
    return Image.fromarray(np.roll(pixels, draw.integers(40), 1).clip(0, 255).astype(np.uint8))


class World:
    """A dataset in a folder, `data` and `out`, and the nights that pass over it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind

    @classmethod
    def begin(cls, folder: Path, kind: str, analysis: str) -> "World":
        """Builds the first version, of 16 days."""
        folder.mkdir()
        head = HEAD.replace("NAME", kind).replace("ANALYSIS", analysis)
        (folder / "dataset.yaml").write_text(head + SPECS[kind])
        world = cls(folder, kind)
        for number in range(DAYS):
            world.put(number)
        world.night()
        return world

    def copied(self, folder: Path) -> "World":
        """Copies the dataset with its times, so that a build finds its days unchanged."""
        shutil.copytree(self.folder, folder)
        return World(folder, self.kind)

    def put(self, number: int, change: Change = lambda rows: rows) -> None:
        """Writes a day, counted from the first, with its rows changed; one without rows is removed."""
        day = FIRST + timedelta(number)
        shutil.rmtree(folder := self.folder / f"data/{day}", ignore_errors=True)
        if rows := change({"goods": goods, "photos": photos}[self.kind](day)):
            folder.mkdir(parents=True)
            lines = [json.dumps(line, ensure_ascii=False) for line in _with_files(folder, rows)]
            (folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def night(self, **options: Any) -> list[str]:
        """Builds; returns the rules that are breached, none where the version goes live; or that rows are rejected."""
        spec = load_spec(str(self.folder / "dataset.yaml"))
        try:
            build(spec, self.output, RunOptions(**options))
        except GateBreachedError as error:
            return sorted({breach["rule"] for breach in error.published.manifest.gate["breaches"]})
        except TooManyRejectsError:
            return [TOO_MANY_REJECTS]
        return []

    @property
    def output(self) -> str:
        """The folder of the versions."""
        return str(self.folder / "out")

    def approve(self) -> None:
        """Builds, and approves what is held back."""
        assert self.night()
        approve(self.output)

    def reject(self) -> None:
        """Builds, and rejects what is held back."""
        assert self.night()
        reject(self.output)

    def rollback(self) -> None:
        """Makes the version before the live one live again."""
        rollback(self.output)


def _with_files(folder: Path, rows: Rows) -> Iterator[dict[str, Any]]:
    """Writes the pictures of rows; returns the rows with their files' names."""
    for number, row in enumerate(rows):
        if picture := row.pop("picture", None):
            data = picture if isinstance(picture, bytes) else saved(picture, "JPEG", quality=90)
            (folder / f"{number}.jpg").write_bytes(data)
            row["image"] = f"{number}.jpg"
        yield row
