"""Reads augmentations from text, as a command line gives them, without running any of it.

>>> augmentations_of("RandomFlip(vertical=0.5), GaussianBlur(3)")
[RandomFlip(horizontal=0.5, vertical=0.5), GaussianBlur(kernel=3, sigma=(0.1, 2.0))]
"""

import ast
from typing import Any

import recordmill.augment
from recordmill.pipeline.errors import DatasetError, did_you_mean
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.numpy.augment.base import Augmentation

KNOWN: dict[str, type[Augmentation]] = {
    name: value
    for name, value in vars(recordmill.augment).items()
    if isinstance(value, type) and issubclass(value, Augmentation) and value is not Augmentation
}
ADVICE = "write one or several of recordmill.augment with plain options, such as 'RandomResizedCrop(224), RandomFlip()'"


def augmentations_of(text: str) -> list[Augmentation]:
    """Makes the augmentations that a text names: `Name(options)`, several with commas between them, or a list.

    Raises:
        DatasetError: it is something else; an option is unknown, or has a wrong value.
    """
    try:
        parsed = ast.parse(text.strip(), mode="eval").body
        value = _value(parsed)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise DatasetError(f"--augment {cut(repr(text), 200)}: {_first_line(error)}; {ADVICE}") from None
    several = list(value) if isinstance(value, list | tuple) else [value]
    if not several or not all(isinstance(each, Augmentation) for each in several):
        raise DatasetError(f"--augment {cut(repr(text), 200)} names no augmentation; {ADVICE}")
    return several


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


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
        raise ValueError(f"there is no augmentation '{name}'{did_you_mean(name, KNOWN)}")
    options = {each.arg: _value(each.value) for each in node.keywords if each.arg is not None}
    if len(options) < len(node.keywords):
        raise ValueError("** is no option")
    return KNOWN[node.func.id](*map(_value, node.args), **options)
