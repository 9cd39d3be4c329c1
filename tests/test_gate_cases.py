"""Bad nights and good ones, by what the gate's default limits say of each: a table to add a line to.

Each case changes the data of a small dataset by a named function and builds it for real; `python -m pytest
tests/test_gate_cases.py -m nightly` runs them.
"""

import io
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

from tests.gate_worlds import DAYS, TOO_MANY_REJECTS, Change, Rows, World
from tests.messages import assert_names
from tests.pictures import saved

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
NEXT, SATURDAY = DAYS, DAYS + 3
Night = Callable[[World], None]


@dataclass(frozen=True)
class Case:
    """A change of a dataset, and the rules breached by the last night."""

    name: str
    happens: Night
    breaches: str = ""
    """The rules, in alphabetical order; empty for none."""
    world: str = "goods"
    """The dataset: `goods`, `photos`, or `refresh`: goods analyzed again by each build."""
    compact: bool = False


def new_day(change: Change, number: int = NEXT) -> Night:
    """Adds a day with changed rows."""
    return lambda world: world.put(number, change)


def each(**changes: Callable[[Any], Any]) -> Change:
    """Changes fields of every row."""
    return lambda rows: [row | {name: change(row[name]) for name, change in changes.items()} for row in rows]


def every(step: int, change: Change) -> Change:
    """Changes every `step`-th row."""
    return lambda rows: [change([row])[0] if number % step == 0 else row for number, row in enumerate(rows)]


def shuffled(name: str) -> Change:
    """Replaces the value of each row by that of another row."""

    def change(rows: Rows) -> Rows:
        order = np.random.default_rng(3).permutation(len(rows)).tolist()
        return [row | {name: rows[other][name]} for row, other in zip(rows, order, strict=True)]

    return change


def swapped(label: str) -> str:
    return {"cat": "dog", "dog": "cat"}.get(label, label)


def only(share: float) -> Change:
    """Keeps a share of the rows."""
    return lambda rows: rows[: round(len(rows) * share)]


def again(rows: Rows) -> Rows:
    """Adds all rows a second time, with other keys."""
    return rows + [row | {"id": f"{row['id']}-2"} for row in rows]


def without(label: str) -> Change:
    return lambda rows: [row for row in rows if row["label"] != label]


def as_label(name: str, step: int) -> Change:
    return every(step, each(label=lambda label: name))


GERMAN = "der schnelle braune Fuchs springt über den faulen Hund und schläft dann lange am warmen Ofen".split()


def german(text: str) -> str:
    return " ".join(random.Random(text).choices(GERMAN, k=len(text.split())))


def mojibake(text: str) -> str:
    return text.encode().decode("latin-1")


def html(text: str) -> str:
    return f'<div class="body"><p style="margin:0">{text}</p><br/></div>'


def words(rows: Rows) -> Rows:
    """Adds a new word to a few texts."""
    return every(20, each(text=lambda text: f"{text} novelty"))(rows)


def on_every_day(change: Change) -> Night:
    """Adds a day, and changes all."""

    def happens(world: World) -> None:
        for number in range(NEXT + 1):
            world.put(number, change)

    return happens


# Photos


def picture(change: Callable[[Image.Image], Any], step: int = 1) -> Night:
    """Adds a day of changed photos."""
    return new_day(every(step, each(picture=change)))


def photo(name: str, change: Callable[[Image.Image], Any], breaches: str = "", step: int = 1) -> Case:
    """A case of a day of changed photos."""
    return Case(name, picture(change, step), breaches, "photos")


def darker(by: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.point(lambda level: level * by)


def recompressed(quality: int) -> Callable[[Image.Image], bytes]:
    return lambda image: saved(Image.open(io.BytesIO(saved(image, quality=quality))), quality=90)


# Several nights


def nights(*steps: Night) -> Night:
    """Lets several things happen, one after another."""

    def happens(world: World) -> None:
        for step in steps:
            step(world)

    return happens


def passes(world: World) -> None:
    """Builds a night that must go live."""
    assert world.night() == []


def fourteen_nights(world: World) -> None:
    """Lets two weeks pass."""
    for number in range(NEXT, NEXT + 14):
        world.put(number)
        passes(world)


def cheap(by: float) -> Change:
    return each(price=lambda price: round(price * by, 2))


ODD_DAY = nights(new_day(cheap(2)), World.approve)
CHEAP = nights(ODD_DAY, new_day(lambda rows: cheap(2)(rows[1:])))
DARK = nights(picture(darker(0.5)), World.approve)


def one_changed(change: Callable[[Image.Image], Any], number: int = NEXT) -> Night:
    """Changes one more picture of a day."""

    def one(rows: Rows) -> Rows:
        rows = each(picture=change)(rows)
        return [rows[0] | {"picture": ImageOps.flip(rows[0]["picture"])}, *rows[1:]]

    return new_day(one, number)


def one_picture(rows: Rows) -> Rows:
    return each(picture=lambda image: rows[0]["picture"])(rows)


BAD = [
    Case("half a day is missing", new_day(only(0.5)), "rows_short"),
    Case("30 % of a day is missing", new_day(only(0.7))),
    Case("20 % of a day is missing", new_day(only(0.8))),
    Case("a third of a small Saturday is missing", new_day(only(0.66), SATURDAY), "rows_short"),
    Case("half of an old day is missing", new_day(only(0.5), 5), "rows_short"),
    Case("three old days are gone", nights(*[new_day(only(0), number) for number in range(3)]), "rows_lost"),
    Case("a day has all rows twice, with other keys", new_day(again), "leakage"),
    Case("all days have all rows twice", on_every_day(again), "duplicates leakage"),
    Case("a frequent class vanishes", new_day(without("dog")), "rows_short"),
    Case("a rare class vanishes from all days", on_every_day(without("fox")), "names_lost"),
    Case("a rare class vanishes from a day", new_day(without("fox"))),
    Case("labels are lost", new_day(each(label=lambda label: "")), TOO_MANY_REJECTS),
    Case("all labels are one", new_day(each(label=lambda label: "cat")), "l_infinity"),
    Case("a class of garbage comes", new_day(as_label("N/A", 4)), "rejects"),
    Case("a class of garbage comes, analyzed anew", new_day(as_label("N/A", 4)), "l_infinity", "refresh"),
    Case("labels are in capitals", new_day(each(label=str.upper)), TOO_MANY_REJECTS),
    Case("labels are in capitals, analyzed anew", new_day(each(label=str.upper)), "l_infinity", "refresh"),
    Case("labels are shuffled", new_day(shuffled("label"))),
    Case("cat and dog are swapped", new_day(each(label=swapped))),
    Case("texts are those of other rows", new_day(shuffled("text"))),
    Case("texts are in another language", new_day(each(text=german)), "out_of_vocabulary"),
    Case("texts are in another language", new_day(each(text=german)), "out_of_vocabulary", "refresh"),
    Case("all texts are in another language", on_every_day(each(text=german)), "out_of_vocabulary", "refresh"),
    Case("texts are empty", new_day(each(text=lambda text: "")), "missing psi"),
    Case("one text in ten is empty", new_day(every(10, each(text=lambda text: ""))), "missing psi"),
    Case("texts are cut", new_day(each(text=lambda text: text[:25])), "out_of_vocabulary psi"),
    Case("texts are cut in words", new_day(each(text=lambda text: text[:-3])), "out_of_vocabulary"),
    Case("texts are decoded as Latin-1", new_day(each(text=mojibake)), "out_of_vocabulary psi"),
    Case("texts are in HTML", new_day(each(text=html)), "out_of_vocabulary psi"),
    Case("texts are repeated", new_day(each(text=lambda text: f"{text} {text}")), "psi"),
    Case(
        "texts are the first one", new_day(lambda rows: each(text=lambda text: rows[0]["text"])(rows)), "duplicates psi"
    ),
    Case("prices × 1.3 in 800 rows", new_day(cheap(1.3))),
    Case("prices × 1.3", on_every_day(cheap(1.3)), "shift"),
    Case("prices in cents", new_day(cheap(100)), "psi shift"),
    Case("prices are 0", new_day(cheap(0)), "psi shift"),
    Case("prices are lost", new_day(each(price=lambda price: None)), "missing"),
    Case("one price in ten is lost", new_day(every(10, each(price=lambda price: None))), "missing"),
    Case("prices are rounded to tens", new_day(each(price=lambda price: round(price, -1))), "psi"),
    Case("a balance has the other sign", new_day(each(balance=lambda balance: -balance)), "psi shift"),
    Case("a balance is constant", new_day(each(balance=lambda balance: 8.0)), "psi"),
    Case("a balance is 999 where it is unknown", new_day(every(10, each(balance=lambda balance: 999))), "psi"),
    Case("a stock is of other goods", new_day(shuffled("stock"))),
    Case("cities are in lower case", new_day(each(city=str.lower)), "l_infinity out_of_vocabulary"),
    Case("one city in ten is misspelt", new_day(every(10, each(city=lambda city: f"{city}?"))), "out_of_vocabulary"),
    Case("all cities are one", new_day(each(city=lambda city: "Oslo")), "l_infinity"),
    Case(
        "a third of a day's rows is rejected", new_day(every(3, each(price=lambda price: "abc"))), "rejects rows_short"
    ),
    Case("a tenth of a day's rows is rejected", new_day(every(10, each(price=lambda price: "abc")))),
    Case("keys of an old day are others", new_day(each(id=lambda key: f"x{key}"), 5)),
    Case("an approved day becomes worse", nights(ODD_DAY, new_day(cheap(5))), "psi shift"),
    Case(
        "a day that was rejected comes again",
        nights(new_day(cheap(2)), World.reject, new_day(cheap(2.01))),
        "psi shift",
    ),
    Case("a day that was rolled back comes again", nights(ODD_DAY, World.rollback, new_day(cheap(2.01))), "psi shift"),
    photo("images are inverted", ImageOps.invert, "appearance pixels"),
    photo("red and blue are swapped", lambda image: Image.merge("RGB", image.split()[::-1]), "appearance pixels"),
    photo("images are grey", lambda image: image.convert("L"), "appearance pixels"),
    photo("images are upscaled from 8 × 8", lambda image: image.resize((8, 6)).resize((40, 30)), "appearance"),
    photo("images are blurred", lambda image: image.filter(ImageFilter.GaussianBlur(3)), "appearance"),
    photo("images are half as bright", darker(0.5), "appearance pixels"),
    photo("images are black", darker(0), "appearance duplicates pixels"),
    photo("one image in ten is black", darker(0), step=10),
    photo("one image in three is black", darker(0), "pixels", step=3),
    photo("JPEG of quality 2", recompressed(2), "appearance"),
    photo("images are noise", lambda image: Image.effect_noise((40, 30), 80).convert("RGB"), "appearance pixels"),
    Case("all images are one", new_day(one_picture), "appearance duplicates", "photos"),
    photo("images are rotated", lambda image: image.transpose(Image.Transpose.ROTATE_90)),
    photo("images are upside down", ImageOps.flip),
    photo("images are squeezed", lambda image: image.resize((10, 30)), "appearance pixels"),
    photo("images are thumbnails", lambda image: image.resize((12, 9)), "appearance"),
    photo("images are cropped to their middle", lambda image: image.crop((15, 11, 25, 19)), "appearance"),
    Case("labels of photos are swapped", new_day(each(label=swapped)), "", "photos"),
    Case("an approved dark day becomes darker", nights(DARK, picture(darker(0.1))), "appearance pixels", "photos"),
]
GOOD = [
    Case("an ordinary night", new_day(only(1))),
    Case("fourteen ordinary nights", fourteen_nights),
    Case("nothing is new", nights()),
    Case(
        "a Saturday, as small as the last ones", nights(*[new_day(only(1), day) for day in range(NEXT, SATURDAY + 1)])
    ),
    Case("a Saturday alone", new_day(only(1), SATURDAY)),
    Case("a holiday, 8 % smaller", new_day(only(0.92))),
    Case("a day of 15 % more rows", new_day(lambda rows: rows + again(rows)[len(rows) : len(rows) * 115 // 100])),
    Case("a day before the first one comes late", new_day(only(1), -1)),
    Case("late rows of yesterday", nights(new_day(only(0.95)), passes, new_day(only(1)))),
    Case("the oldest day goes", nights(new_day(only(1)), new_day(only(0), 0))),
    Case("days are put together", nights(new_day(only(1)), passes), compact=True),
    Case("days were put together", nights(lambda world: world.night(compact=True) and None, new_day(only(1)))),
    Case("an old day has a few other rows", new_day(every(50, each(price=lambda price: price + 1)), 7)),
    Case("one class has 10 % more", new_day(as_label("cat", 20))),
    Case(
        "a rare class has half as many",
        new_day(lambda rows: [r for n, r in enumerate(rows) if n % 2 or r["label"] != "fox"]),
    ),
    Case("three rows are rejects", new_day(every(300, each(price=lambda price: "abc")))),
    Case("a few prices more are lost", new_day(every(50, each(price=lambda price: None)))),
    Case("prices rise by 2 %", new_day(cheap(1.02))),
    Case("a few rows come twice", new_day(lambda rows: rows + again(rows)[len(rows) : len(rows) + 10])),
    Case("a few misspelt cities", new_day(every(40, each(city=lambda city: f"{city}?")))),
    Case("a few new words", new_day(words)),
    Case("an ordinary night, analyzed anew", new_day(only(1)), world="refresh"),
    Case("a few new words, analyzed anew", new_day(words), world="refresh"),
    Case("a city moves up the vocabulary", new_day(every(9, each(city=lambda city: "Prague"))), world="refresh"),
    Case("an approved day without one row", CHEAP),
    Case(
        "an approved day without one row, days later",
        nights(CHEAP, passes, new_day(only(1), NEXT + 1), passes, new_day(lambda rows: cheap(2)(rows[2:]))),
    ),
    Case("an approved change a little larger", nights(ODD_DAY, new_day(cheap(2.1)))),
    Case("an approved change again on the next day", nights(ODD_DAY, new_day(cheap(2), NEXT + 1))),
    Case("an approved day is mended", nights(ODD_DAY, new_day(only(1)))),
    Case("an approved half day with one row more", nights(new_day(only(0.5)), World.approve, new_day(only(0.501)))),
    Case("an ordinary night of photos", new_day(only(1)), world="photos"),
    Case("one picture is changed", nights(new_day(only(1)), passes, one_changed(lambda image: image)), world="photos"),
    Case("one picture of an approved dark day is changed", nights(DARK, one_changed(darker(0.5))), world="photos"),
    Case("another dark day", nights(DARK, new_day(each(picture=darker(0.52)), NEXT + 1)), world="photos"),
    photo("images are 2 % brighter", darker(1.02)),
    photo("JPEG of quality 75", recompressed(75)),
    photo("a few images are rotated", lambda image: image.transpose(Image.Transpose.ROTATE_90), step=20),
    photo("images are mirrored", ImageOps.mirror),
]
KINDS = {"goods": ("goods", "frozen"), "refresh": ("goods", "refresh"), "photos": ("photos", "frozen")}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], World]:
    """Builds each dataset once."""
    built: dict[str, World] = {}

    def world(name: str) -> World:
        if name not in built:
            built[name] = World.begin(tmp_path_factory.mktemp("worlds") / name, *KINDS[name])
        return built[name]

    return world


def said(case: Case) -> str:
    return re.sub(r"[^\w%]+", "-", f"{case.world} {case.name} {case.breaches}")


@pytest.mark.nightly
@pytest.mark.parametrize("case", [*BAD, *GOOD], ids=said)
def test_a_night(worlds: Callable[[str], World], tmp_path: Path, case: Case) -> None:
    world = worlds(case.world).copied(tmp_path / "world")
    case.happens(world)
    assert " ".join(world.night(compact=case.compact)) == case.breaches


def test_no_good_night_is_held_back_and_the_page_counts_the_bad_ones() -> None:
    held = sum(bool(case.breaches) for case in BAD)
    assert not any(case.breaches for case in GOOD)
    page = (Path(__file__).parents[1] / "docs/gate.md").read_text()
    assert_names(page, f"{held} of {len(BAD)} bad nights", f"none of {len(GOOD)} good ones")
