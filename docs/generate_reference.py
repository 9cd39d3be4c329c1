"""Writes docs/reference/: the spec's options from their classes, the commands from their functions.

    python docs/generate_reference.py

A test compares the pages with what this writes.
"""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.spec.model import Spec

FOLDER = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate_reference.py: change the docstrings, then run it. -->"


def main() -> None:
    """Writes the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Gives the pages by name."""
    return {"options.md": "\n".join(_options()), "commands.md": "\n".join(_commands())}


def _options() -> Iterator[str]:
    schema = Spec.model_json_schema()
    yield f"{NOTE}\n\n# Options of the spec\n"
    yield "Every key of `dataset.yaml`, by the group that it stands in. [spec.md](../spec.md) explains them;"
    yield "`recordmill schema` gives the same to [your editor](../spec.md#in-an-editor).\n"
    for name, group in {"dataset.yaml": schema, **schema["$defs"]}.items():
        yield f"## {name}\n\n{_first_line(group.get('description', ''))}\n"
        yield "| key | type | default | meaning |\n|---|---|---|---|"
        for key, option in group.get("properties", {}).items():
            default = json.dumps(option["default"]) if "default" in option else "needed"
            meaning = " ".join(option.get("description", "").split())
            yield f"| `{key}` | {_cell(_type(option))} | {_cell(f'`{default}`')} | {_cell(meaning)} |"
        yield ""


def _type(option: dict[str, Any]) -> str:
    """Gives the type of an option in a word or two."""
    if "$ref" in option:
        name = option["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in option:
        return f"`{json.dumps(option['const'])}`"
    if "enum" in option:
        return ", ".join(f"`{value}`" for value in option["enum"])
    if several := option.get("anyOf") or option.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(each) for each in several))
    if option.get("type") == "array":
        return f"list of {_type(option['items'])}" if "items" in option else "list"
    if option.get("type") == "object":
        inner = option.get("additionalProperties") or next(iter(option.get("patternProperties", {}).values()), None)
        return f"mapping to {_type(inner)}" if isinstance(inner, dict) and inner else "mapping"
    return str(option.get("type", "anything"))


def _commands() -> Iterator[str]:
    yield f"{NOTE}\n\n# Commands\n"
    yield "`recordmill COMMAND --help` prints the same. Arguments after `--` go to Beam.\n"
    for name, command in _flat(typer.main.get_command(app)):
        context = command.context_class(command, info_name=f"recordmill {name}")
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n\n```\nrecordmill {name} {usage}\n```\n"
        rows = [row for parameter in command.get_params(context) if (row := _parameter(parameter))]
        if rows:
            yield "| | default | |\n|---|---|---|"
            yield from rows
            yield ""


def _flat(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the commands in the order of the help, those of `versions` last."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _flat(command, f"{name} ")
        else:
            yield f"{before}{name}", command


def _parameter(parameter: Any) -> str | None:
    if "--help" in parameter.opts:
        return None
    is_option, default = parameter.param_type_name == "option", parameter.default
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    shown = "" if default in (None, False, "", (), []) or callable(default) else f"`{default}`"
    meaning = " ".join((getattr(parameter, "help", None) or "").split())
    return f"| {', '.join(f'`{name}`' for name in names)} | {_cell(shown)} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _first_line(text: str) -> str:
    return text.split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    main()
