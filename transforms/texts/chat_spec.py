"""Chats: messages rendered by the model's template, as ids with a mask of the tokens to train on."""

import os
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.yaml_document import Options
from recordmill.transforms.base.columns import Column, ColumnType
from recordmill.transforms.base.description import Description
from recordmill.transforms.texts.text_ids_spec import TextIds
from recordmill.transforms.texts.text_stored import KEYS, LOSS_MASK, ChatDescription

CONFIG, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"


class InstructionColumns(Options):
    """Columns of text that make a chat of two turns, as in Alpaca's data."""

    instruction: str = Field(min_length=1)
    """The user's text."""
    output: str = Field(min_length=1)
    """The assistant's text."""
    input: str | None = Field(default=None, min_length=1)
    """Follows the instruction after a blank line, where it is not empty."""
    system: str | None = Field(default=None, min_length=1)
    """The system's text."""
    history: str | None = Field(default=None, min_length=1)
    """Earlier turns: lists of a question and its answer."""


class Chat(TextIds):
    """A chat as ids, with a mask of the tokens to train on."""

    column_type = ColumnType.OBJECTS
    tokenizer: ClassVar[str] = "huggingface"
    kind: Literal["chat"]
    is_packable: ClassVar[bool] = True
    model: str = Field(min_length=1)
    """The model's `tokenizer.json`."""
    config: str | None = Field(default=None, min_length=1)
    """Special tokens, and maybe the template. None: `tokenizer_config.json` beside the model."""
    template: str | None = Field(default=None, min_length=1)
    """A chat template in Jinja. None: `chat_template.jinja` beside the model, else the config's."""
    train: Literal["assistant", "last", "all"] = "assistant"
    """The tokens that the loss counts: the assistant's turns, only the last one, or everything."""
    max_length: int | None = Field(default=None, ge=1, strict=True)
    """Keeps this many ids, and pads batches to this length. None: keeps all, and pads to a batch's longest chat."""
    truncate: Literal["end", "start"] = "end"
    """The side on which long chats are cut."""
    roles: dict[str, Literal["system", "developer", "user", "assistant", "tool", "function"]] = {}
    """Roles of the data under other names: {bot: assistant}. Known are OpenAI's and ShareGPT's."""
    tools: str | None = Field(default=None, min_length=1)
    """The column of tools, a list of JSON Schemas, for the template."""
    system: str | None = Field(default=None, min_length=1)
    """The column of the system's text, for chats that do not begin with one."""
    prompt: str | None = Field(default=None, min_length=1)
    """The column of the messages before those of `column`; their answers are not trained."""
    columns: InstructionColumns | None = None
    """Columns of text, instead of one column of messages."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.columns is not None and self.column is not None:
            raise WrongValueError("contradicts `columns`, which name the chat's columns: leave one out", "column")
        if self.truncate != "end" and self.max_length is None:
            raise WrongValueError("needs `max_length`: give one, or leave `truncate` out", "truncate")
        if self.columns is not None and self.optional:
            raise WrongValueError("a chat of `columns` has an output: leave `optional` out", "optional")
        return self

    @property
    def config_path(self) -> str:
        return self.config or beside(self.model, CONFIG)

    def first_column(self, name: str) -> str:
        return super().first_column(name) if self.columns is None else self.columns.output

    def _column(self) -> Column:
        return replace(super()._column(), keys=KEYS) if self.columns is None else Column(ColumnType.TEXT)

    def with_template(self, folder: str | None) -> "Chat":
        """Returns a copy that names the template beside the model, if there is one; paths start at `folder`."""
        path = beside(self.model, TEMPLATE)
        found = self.template is None and os.path.exists(os.path.join(folder or "", path))
        return self.model_copy(update={"template": path}) if found else self

    def joined_columns(self, name: str) -> dict[str, tuple[str, Column]]:
        text, missing = Column(ColumnType.TEXT), Column(ColumnType.TEXT, optional=True)
        objects, messages = Column(ColumnType.OBJECTS, optional=True), super()._column()
        kinds = {"messages": replace(messages, keys=KEYS), "output": text, "instruction": text, "input": missing}
        kinds |= {"system": missing, "history": objects, "prompt": replace(objects, keys=KEYS), "tools": objects}
        beside = {field: getattr(self, field) for field in ("system", "prompt", "tools") if getattr(self, field)}
        named = {**(dict(self.columns) if self.columns else {"messages": self.first_column(name)}), **beside}
        found = {field: (named[field], kind) for field, kind in kinds.items() if named.get(field)}
        return found if len(found) > 1 else {}

    def files(self) -> dict[str, str]:
        given = {"model": self.model, "config": self.config_path, "template": self.template}
        return {option: path for option, path in given.items() if path is not None}

    @property
    def library_parts(self) -> tuple[str, ...]:
        return (LOSS_MASK,)

    def describe(self, statistics: dict[str, Any]) -> Description:
        return self._describe_given(ChatDescription, statistics)


def beside(path: str, name: str) -> str:
    """Returns the path of another file in a file's folder, local or at a URL."""
    return os.path.join(os.path.dirname(path), name)
