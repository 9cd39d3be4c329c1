"""Chat templates: Jinja in a sandbox with the settings of Hugging Face's `apply_chat_template`, without a clock.

`{% generation %}` blocks give the character spans of the assistant's text.

>>> source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}"
>>> ChatTemplate(source).render([{"role": "assistant", "content": "hi"}])
Rendered(text='hi;', spans=[(0, 2)])
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds.chat import ChatError

Messages = Sequence[Mapping[str, Any]]
Spans = list[tuple[int, int]]
CLOCK = "strftime_now"
REASON = "template_error"
TRACKER = "@generation"
BLOCKS = re.compile(r"\{%-?\s*generation\s*-?%\}")


@dataclass
class Rendered:
    """A chat's text, and the character spans of its generation blocks, in order."""

    text: str = ""
    spans: Spans = field(default_factory=list)


class Generation(Extension):
    """The block `{% generation %}`: adds its span to the `Rendered` in the context."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """Makes a call of `span` with the block's text."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("span", [nodes.ContextReference()])
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def span(self, context: Context, caller: Macro) -> str:
        """Returns the block's text, and adds its span."""
        text, rendered = caller(), context[TRACKER]
        rendered.spans.append((len(rendered.text), len(rendered.text) + len(text)))
        return text


class ChatTemplate:
    """A compiled template; may be used by several threads."""

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None, where: str = "the chat template") -> None:
        """Takes Jinja and special tokens by name, such as `bos_token`. Raises: UserError: wrong syntax."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        self.tokens, self.where, self._source = dict(tokens or {}), where, source
        self.has_blocks = BLOCKS.search(source) is not None
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise UserError(f"{where}, line {error.lineno}: {error.message}: correct the template") from None

    def render(self, messages: Messages, tools: Messages | None = None, *, prompt: bool = False) -> Rendered:
        """Renders a chat; `prompt` adds the header of the assistant's next turn.

        Raises: ChatError: the template raises. UserError: it reads the clock.
        """
        rendered = Rendered()
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt}
        with self._refusals():
            for piece in self._template.generate({**self.tokens, **given, TRACKER: rendered}):
                rendered.text += piece
        return rendered

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except jinja2.UndefinedError as error:
            if CLOCK in str(error):
                remedy = "write a fixed date into a copy, and name it as `template`"
                raise UserError(
                    f"{self.where} calls {CLOCK}, and records must not depend on the clock: {remedy}"
                ) from None
            raise ChatError(REASON, "a field that the template reads is missing") from None
        except jinja2.TemplateError as error:
            message = error.message or ""
            # A template may put the chat's words into its message; rejects must not hold them.
            own = f": {cut(message, 200)}" if message and message in self._source else ""
            raise ChatError(REASON, f"the template raises {type(error).__name__}{own}") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise ChatError(REASON, f"the template raises {type(error).__name__}") from None


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Replaces Jinja's filter, which escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def read_template(config: Mapping[str, Any], *, tools: bool = False) -> str | None:
    """Returns the template of a `tokenizer_config.json`; of several the one for tools, or the default."""
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = (named.get("tool_use") if tools else None) or named.get("default")
    return template if isinstance(template, str) else None


def named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the special tokens of a `tokenizer_config.json`, by name: `bos_token`, `eos_token`.

    >>> named_tokens({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None})
    {'bos_token': '<s>', 'eos_token': '</s>'}
    """
    named = {name: value for name, value in config.items() if name.endswith("_token")}
    found = {name: value.get("content") if isinstance(value, dict) else value for name, value in named.items()}
    return {name: token for name, token in found.items() if isinstance(token, str)}
