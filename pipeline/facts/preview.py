"""Draws records for people: the source's image, the stored one and augmented ones, with their boxes, and texts."""

import ast
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import recordmill.augment
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.errors import DatasetError, did_you_mean
from recordmill.pipeline.facts.painting import Pose, mask_classes, seen, with_poses
from recordmill.pipeline.facts.sample import FeatureRoles, images_of
from recordmill.pipeline.facts.version import VersionFacts
from recordmill.pipeline.inspection import Record, raw_image
from recordmill.pipeline.reader.order import combine, uniform
from recordmill.pipeline.reader.rows import AUGMENT
from recordmill.pipeline.safe_text import cut, printable
from recordmill.transforms.images.augment.base import Augmentation, Lying, MovedBoxes, MovedKeypoints
from recordmill.transforms.images.augment.chain import acting, apply_acting, check, lanes, parameters
from recordmill.transforms.images.image_stored import Masked
from recordmill.transforms.images.places_stored import Box

TILE = 192  # pixels of an image's longer side
GAP = 10
WIDTH = 1_680  # of the whole image, at least one card
DRAWS = 3  # augmented images for each stored one
TEXT, LINE = 14, 19  # font size, line height
LINES, LONGEST = 4, 300  # lines on a card, and their characters before they are cut to its width
TEXT_WIDTH = 400  # a card's least width
PAGE, CARD, INK, SOFT = "#ffffff", "#f3f5f7", "#1c2128", "#5a6472"
FONTS = (
    "DejaVuSans.ttf",
    "NotoSansCJK-Regular.ttc",
    "Arial Unicode.ttf",
    "msyh.ttc",
    "unifont.otf",
    "unifont_upper.otf",
)
"""Fonts of Linux, macOS and Windows: each character is of the first installed one that has it."""
Tile = tuple[str, Image.Image]  # a caption and an image
Card = tuple[Sequence[Tile], Sequence[str]]  # of a record or a reject: tiles, and lines, the first darker
Changes = Sequence[Augmentation]
KNOWN: dict[str, type[Augmentation]] = {
    name: value
    for name, value in vars(recordmill.augment).items()
    if isinstance(value, type) and issubclass(value, Augmentation) and value is not Augmentation
}
ADVICE = "write one or several of recordmill.augment with plain options, such as 'RandomResizedCrop(224), RandomFlip()'"


def preview(
    dataset: DatasetVersion, records: Iterable[Record], changes: Changes = (), sources: Path | None = None
) -> Image.Image:
    """Draws records, a card each, in an RGB image up to 1,680 pixels or one card wide.

    Also shows each image with augmentations, `changes`, as in the first epochs of a training with `seed=0`, and from
    the folder `sources` the images at the keys. Raises: DatasetError: `records` is empty; an image is damaged; an
    augmentation does not fit the images.
    """
    roles = FeatureRoles(dataset)
    if changes and not roles.images:
        raise DatasetError(f"augmentations are for images, and {dataset.name} has none: leave them out")
    records = list(records)
    page = draw([_card(roles, record, changes, sources) for record in records])
    for name, description in roles.class_masks.items():
        classes = mask_classes(description, (image.array() for record in records for image in images_of(record, name)))
        named = ((f"{each.name} {each.share:.1%}", each.color) for each in classes)
        # Lines below: words, each with a colour.
        x, y, placed = GAP, page.height, list[tuple[int, int, str, str]]()
        for label, color in ((f"{name}:", PAGE), *named):
            words = printable(label)
            width = LINE + 2 * GAP + round(width_of(words))
            x, y = (GAP, y + LINE) if x > GAP and x + width > page.width else (x, y)
            placed.append((x, y, words, color))
            x += width
        whole = Image.new("RGB", (page.width, y + LINE + GAP), PAGE)
        whole.paste(page)
        pen = ImageDraw.Draw(whole)
        for x, y, words, color in placed:
            pen.rectangle((x, y + 3, x + LINE - 6, y + LINE - 3), color, PAGE if words.endswith(":") else SOFT)
            write(pen, (x + LINE, y), words, INK)
        page = whole
    return page


def draw(cards: Sequence[Card]) -> Image.Image:
    """Draws cards in a grid. Raises: DatasetError: `cards` is empty."""
    if not cards:
        raise DatasetError("there is nothing to show: no record fits")
    width = max(max(1, *(len(tiles) for tiles, _ in cards)) * (TILE + GAP) + GAP, TEXT_WIDTH)
    of_images = [max((image.height + LINE + GAP for _, image in tiles), default=0) for tiles, _ in cards]
    of_lines = [min(LINES, len(lines)) * LINE for _, lines in cards]
    heights = [images + lines + 2 * GAP for images, lines in zip(of_images, of_lines, strict=True)]
    columns = min(len(cards), max(1, WIDTH // (width + GAP)))
    rows = [max(heights[start : start + columns]) for start in range(0, len(cards), columns)]
    page = Image.new("RGB", (columns * (width + GAP) + GAP, sum(rows) + GAP * (len(rows) + 1)), PAGE)
    pen = ImageDraw.Draw(page)
    for number, (tiles, lines) in enumerate(cards):
        row, column = divmod(number, columns)
        left, top = GAP + column * (width + GAP), GAP + sum(rows[:row]) + GAP * row
        pen.rounded_rectangle((left, top, left + width - 1, top + rows[row] - 1), 6, CARD)
        y = top + GAP
        for place, (caption, image) in enumerate(tiles):
            x = left + GAP + place * (TILE + GAP)
            page.paste(image, (x, y + LINE))
            write(pen, (x, y), _cut(caption, TILE), SOFT)
        if tiles:
            y += LINE + max(image.height for _, image in tiles) + GAP
        for place, line in enumerate(lines[:LINES]):
            write(pen, (left + GAP, y + place * LINE), _cut(line, width - 2 * GAP), SOFT if place else INK)
    return page


def reject_cards(dataset: DatasetVersion, sources: Path | None, most: int) -> list[Card]:
    """Makes the cards of up to `most` rejects, evenly by reason. Raises: DatasetError: none, or damaged."""
    rejects = VersionFacts(dataset.folder, dataset.manifest).rejects(most)
    turns = chain.from_iterable(zip_longest(*(each.examples for each in rejects)))
    cards = list[Card]()
    for reject in islice(filter(None, turns), most):
        file = str(reject.get("file"))
        image = raw_image(sources, file) if sources is not None else None
        where = file if reject.get("line") is None else f"{file}, line {reject['line']}"
        message = wrap(printable(str(reject.get("message"))), TEXT_WIDTH // (TEXT // 2))
        tiles = [] if image is None else [_tile("source", image)]
        cards.append((tiles, (str(reject.get("code")), printable(where), *message)))
    if not cards:
        raise DatasetError(f"{dataset.name} {dataset.version} has no rejected rows: there is nothing to show")
    return cards


def augmentations_of(text: str) -> list[Augmentation]:
    """Makes augmentations from text: `Name(options)`, several with commas, or a list. Raises: DatasetError: invalid."""
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DatasetError(f"--augment {cut(repr(text), 200)}: {reason}; {ADVICE}") from None
    several = list(value) if isinstance(value, list | tuple) else [value]
    if not several or not all(isinstance(each, Augmentation) for each in several):
        raise DatasetError(f"--augment {cut(repr(text), 200)} names no augmentation; {ADVICE}")
    return several


def _value(node: ast.expr) -> Any:
    """Returns an augmentation, a list of values, or a literal. Raises: ValueError, TypeError."""
    if isinstance(node, ast.List | ast.Tuple):
        values = [_value(each) for each in node.elts]
        return tuple(values) if isinstance(node, ast.Tuple) else values
    if isinstance(node, ast.Name):
        raise ValueError(f"{node.id} is a name alone: write {node.id}(), with its options")
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not isinstance(node.func, ast.Name) or node.func.id not in KNOWN:
        name = ast.unparse(node.func)
        raise ValueError(f"unknown augmentation '{name}'{did_you_mean(name, KNOWN)}")
    options = {each.arg: _value(each.value) for each in node.keywords if each.arg is not None}
    if len(options) < len(node.keywords):
        raise ValueError("** is not allowed")
    return KNOWN[node.func.id](*map(_value, node.args), **options)


def _card(roles: FeatureRoles, record: Record, changes: Changes, sources: Path | None) -> Card:
    tiles = list[Tile]()
    if sources is not None and roles.images and (raw := raw_image(sources, record.key)) is not None:
        tiles.append(_tile("source", raw))
    for picture in roles.pictures(record):
        what = picture.feature if len(roles.images) > 1 else "stored"
        boxes, poses, mask, under = picture.boxes, picture.poses, picture.mask, picture.under
        tiles.append(_tile(what + picture.words, picture.shown, boxes, poses))
        for epoch in range(DRAWS if changes else 0):
            augmented = partial(_augmented, changes, record.position, epoch)
            moved = np.array([box for box, *_ in boxes], np.float32).reshape(-1, 4)
            moved_poses = [(each, points.copy()) for each, points in poses]
            lying: list[Lying] = [MovedBoxes(moved)] if boxes else []
            lying += [MovedKeypoints(points, each.partners) for each, points in moved_poses]
            shown = seen(augmented(picture.pixels, lying, mask), None if under is None else augmented(under), mask)
            kept = [(Box(*box), *named) for box, (_, *named) in zip(moved.tolist(), boxes, strict=True) if any(box)]
            tiles.append(_tile(f"augmented {epoch + 1}", shown, kept, moved_poses))
    label, (texts, others) = roles.label_of(record), roles.words_of(record)
    texts |= {name: str(record.values[name]) for name in roles.chats}  # an answer may begin late
    named = ", ".join(f"{name} {words}" for name, words in others.items() if words)
    parts = (text.replace("\n", " ").replace("⟦", "\n⟦").split("\n") for text in texts.values())
    lines = [*chain.from_iterable(parts), named]  # a line before each text to train on: cards show beginnings
    lines = [record.key, *lines] if label is None else [label, *lines, record.key]
    return tiles, [printable(line[:LONGEST]) for line in lines if line]


def _augmented(
    changes: Changes, position: int, epoch: int, pixels: Any, lying: Sequence[Lying] = (), mask: Masked | None = None
) -> Any:
    """Augments an image, and in place what lies on it, by the random numbers of a position in an epoch."""
    checked = check(changes)
    draws = uniform(combine(0, AUGMENT, epoch), np.array([position]), lanes(checked))
    try:
        row, outside = acting(checked, parameters(checked, draws)[0].tolist()), mask.padding if mask else 0
        return apply_acting(pixels, lying, row, mask=mask is not None, outside=outside)
    except ValueError as error:
        raise DatasetError(str(error)) from None


def _tile(what: str, image: Image.Image, boxes: Sequence[tuple[Any, ...]] = (), poses: Sequence[Pose] = ()) -> Tile:
    """Fits an image to a tile, a small one by a whole factor; draws its boxes, a colour a name, and key points."""
    factor = TILE / max(image.size)
    whole = int(factor) if factor >= 2 else factor
    sides = max(1, round(image.width * whole)), max(1, round(image.height * whole))
    how = Image.Resampling.NEAREST if factor >= 2 else Image.Resampling.LANCZOS
    copy = image.resize(sides, how).convert("RGB")
    pen = ImageDraw.Draw(copy)
    for box, name, color in boxes:
        left, right = sorted((box.x_min * (copy.width - 1), box.x_max * (copy.width - 1)))
        top, bottom = sorted((box.y_min * (copy.height - 1), box.y_max * (copy.height - 1)))
        pen.rectangle((left - 1, top - 1, right + 1, bottom + 1), outline="#000000", width=3)
        place = left + 2, top - LINE if top >= LINE else top
        pen.rectangle((left, top, right, bottom), outline=color)
        write(pen, place, _cut(printable(name), TILE), color, stroke_width=2, stroke_fill="#000000")
    return f"{what}, {image.width}×{image.height}", with_poses(copy, poses)


def _cut(line: str, width: int) -> str:
    line = line.replace("\n", " ")
    while line and width_of(line) > width:
        line = line[: -max(2, len(line) // 20)] + "…"
    return line


def width_of(text: str) -> float:
    """Measures a line in pixels."""
    return sum(font.getlength("".join(run)) for font, run in groupby(text, font_of))


def write(pen: ImageDraw.ImageDraw, place: tuple[float, float], text: str, ink: str, **style: Any) -> None:
    """Draws a line from its upper left corner, in as many fonts as its characters need."""
    x, baseline = place[0], place[1] + fonts()[0].getmetrics()[0]
    for font, run in groupby(text, font_of):
        pen.text((x, baseline), words := "".join(run), ink, font, "ls", **style)
        x += font.getlength(words)


@cache
def fonts() -> list[Any]:
    """Loads the installed ones of `FONTS`, and Pillow's own font."""
    found = list[Any]()
    for name in FONTS:
        with suppress(OSError):
            found.append(ImageFont.truetype(name, TEXT))
    return [*found, ImageFont.load_default(TEXT)]


@lru_cache(1 << 12)
def font_of(character: str) -> Any:
    """Returns the first font that draws a character unlike U+FFFF, which no font has; else the first, with its box."""
    has = (each for each in fonts() if bytes(each.getmask(character)) != bytes(each.getmask("\uffff")))
    return next(has, fonts()[0])
