"""Chat templates: Jinja in a sandbox with the settings of Hugging Face's `apply_chat_template`, without a clock.

A template is a stranger's program. It has only the parts listed here, none of which draws or shows an address; what it
repeats, compares and makes is counted in steps. `{% generation %}` blocks give the spans of the assistant's text.

>>> source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}"
>>> ChatTemplate(source).render([{"role": "assistant", "content": "hi"}])
Rendered(text='hi;', spans=[(0, 2)])
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial, wraps
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.json_values import MOST_NESTED
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.texts.text_stored import TextError

Messages = Sequence[Mapping[str, Any]]
Spans = list[tuple[int, int]]
CLOCK = "strftime_now"
REASON = "template_error"
BLOCKS = re.compile(r"\{%-?\s*generation\s*-?%\}")
MOST_STEPS, MOST_CALLS, MOST_BITS = 1 << 20, 100, 4096  # of a render; nested, well within Python's 1,000; of a number
STEP, PART = 64, 16  # the characters that make a step; those that an item counts as
GROWING = """* batch center indent join ljust lstrip rfind rindex rjust rpartition rsplit rstrip slice strip sum tojson
    trim zfill""".split()
"""Operations that grow by a number or with another text, or take time by the product of two."""
INSTANT = "count d default first last length".split()
FILTERS = """abs attr batch capitalize center dictsort e escape float groupby indent int items join list lower map max
    min reject rejectattr replace reverse round safe select selectattr slice sort string sum title tojson trim truncate
    unique upper wordcount""".split()
TYPES = """boolean callable defined even false float integer iterable mapping none number odd sequence string true
    undefined""".split()
COMPARISONS = "!= < <= == > >= divisibleby eq equalto ge greaterthan gt in le lessthan lt ne sameas".split()
METHODS = """capitalize center count endswith find get index isalnum isalpha isdecimal isdigit islower isnumeric isspace
    isupper items join keys ljust lower lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition
    rsplit rstrip split splitlines startswith strip swapcase title upper values zfill""".split()
DATA: tuple[type, ...] = (str, int, float, list, tuple, dict, range, MappingView, Undefined, type(None))
CALLED = Macro | LoopContext | Undefined  # beside functions and methods
COMPARED = (nodes.Compare, nodes.Operand, nodes.Concat, nodes.List, nodes.Tuple, nodes.Pair, nodes.For)
PARTS = {"expr", "nodes", "items", "value", "test"}
"""Syntax with values that Python itself compares or puts together, and the fields of these values."""


@dataclass
class Rendered:
    """A chat's text, and the character spans of its generation blocks, in order."""

    text: str = ""
    spans: Spans = field(default_factory=list)
    length: int = field(default=0, repr=False)  # of the text so far
    steps: int = field(default=0, repr=False)
    most: int = field(default=0, repr=False)  # steps: more for a long chat
    calls: int = field(default=0, repr=False)  # nested, under way


RENDERED: ContextVar[Rendered] = ContextVar("rendered")


def _size(value: Any, depth: int = 0) -> int:
    """Returns about the characters of a value's text. Raises: SecurityError: it may show an address, or is too deep."""
    if isinstance(value, str):
        return len(value)
    is_big = isinstance(value, int) and value.bit_length() > MOST_BITS
    if is_big or depth > MOST_NESTED or not isinstance(value, DATA):
        raise SecurityError(f"a {type(value).__name__} is no value, too deep or too big")
    items = value.items() if isinstance(value, dict) else value if isinstance(value, Iterable) else ()
    return PART + sum(PART + _size(item, depth + 1) for item in items)


def _counted(value: Any, more: int = 0) -> Any:
    """Counts a value in steps; of an iterator makes a list. Raises: TextError: too many."""
    if type(value) is str:  # most values are, and `isinstance` of an iterator takes longer than all else here
        more += len(value)
    elif value is not None:
        if isinstance(value, Iterator):
            return [_counted(each) for each in value]
        more += _size(value)
    rendered = RENDERED.get()
    rendered.steps += 1 + more // STEP
    if rendered.steps > rendered.most:
        raise TextError(REASON, f"the template takes more than {rendered.most:,} steps")
    return value


@cache
def _counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function that counts its values before it takes them."""
    passed = int(hasattr(function, "jinja_pass_arg"))  # Jinja's own argument comes first

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        values = [_counted(each) for each in given[passed:]]
        both = values + [_counted(each) for each in named.values()] if named else values
        if name in GROWING and not all(isinstance(each, int | float) for each in values):
            sizes = (each if isinstance(each, int) else _size(each) for each in both if not isinstance(each, tuple))
            _counted(None, math.prod(max(1, size) for size in sizes))
        return function(*given[:passed], *values, **named)

    return call


def _replace(text: Any, old: Any, new: Any, count: int | None = None) -> str:
    _counted(None, str(text).count(str(old)) * len(str(new)))
    return str(text).replace(str(old), str(new), -1 if count is None else count)


class Counting(NodeTransformer):
    """Puts filters that count into a template's syntax."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        """Counts the parts of `COMPARED` and slices; and loops and macros, by their nodes and text, each time."""
        super().generic_visit(node)
        parts = PARTS.intersection(node.fields) if isinstance(node, COMPARED) else ()
        sliced = ("node",) if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice) else ()
        for name in (*parts, *sliced) if getattr(node, "ctx", "load") == "load" else ():
            found = getattr(node, name)
            setattr(node, name, list(map(_filtered, found)) if isinstance(found, list) else found and _filtered(found))
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.Template):
            size = sum(len(getattr(each, "data", "1")) for each in node.find_all(nodes.Node))
            node.body.insert(0, nodes.ExprStmt(_filtered(nodes.Const(None), nodes.Const(size))))
        return node


def _filtered(value: nodes.Expr, *more: nodes.Expr) -> nodes.Expr:
    return nodes.Filter(value, "@counted", list(more), [], None, None)


class Generation(Extension):
    """The block `{% generation %}`: adds its span to `RENDERED`."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """Makes a call of `span` with the block's text."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("span"), [], [], body).set_lineno(line)

    def span(self, caller: Macro) -> str:
        """Returns the block's text, and adds its span."""
        text, rendered = caller(), RENDERED.get()
        rendered.spans.append((rendered.length, rendered.length + len(text)))
        return text


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja with the listed parts, counted."""

    intercepted_binops = frozenset(("+", "-", "*", "%", "**"))

    def __init__(self) -> None:
        # `optimized` would compute constants before anything counts.
        given = {"optimized": False, "finalize": _counted, "extensions": [Generation, loopcontrols]}
        super().__init__(trim_blocks=True, lstrip_blocks=True, **given)
        filters, tests = {**self.filters, "replace": _replace, "tojson": _to_json}, self.tests
        self.filters = {name: _counting(name, filters[name]) for name in FILTERS} | {"@counted": _counted}
        self.filters |= {name: filters[name] for name in INSTANT}
        self.tests = {name: _counting(name, tests[name]) for name in COMPARISONS}
        self.tests |= {name: tests[name] for name in TYPES}
        self.globals = {name: self.globals[name] for name in ("dict", "namespace", "range")}
        self.globals["raise_exception"] = _refuse

    def _parse(self, *source: Any) -> nodes.Template:
        return Counting().visit(super()._parse(*source))  # type: ignore[no-any-return]

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Computes by two values. Raises: SecurityError: powers, formats and sets, of any size and order."""
        if operator == "**" or (operator in "-%" and not isinstance(left, int | float | Undefined)):
            raise SecurityError(f"{operator} is not listed")
        return _counting(operator, self.binop_table[operator])(left, right)

    def call(self, context: Context, function: Any, *given: Any, **named: Any) -> Any:  # type: ignore[override]
        """Calls a macro, or a listed function or method. Raises: SecurityError: it is another."""
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if isinstance(owner, str | dict | list | tuple) and name in METHODS:
            of: Any = _replace if name == "replace" else getattr(type(owner), name)
            function = partial(_counting(name, of), owner)
        elif function in self.globals.values():
            function = _counting(name, function)
        elif not isinstance(function, CALLED) and not isinstance(owner, LoopContext | Generation):
            raise SecurityError(f"{name} is not listed")
        _counted(None, PART * len(given))
        rendered = RENDERED.get()
        rendered.calls += 1
        if rendered.calls > MOST_CALLS:
            raise TextError(REASON, f"the template nests more than {MOST_CALLS} calls")
        made = context.call(function, *given, **named)
        rendered.calls -= 1
        return made


class ChatTemplate:
    """A compiled template; may be used by several threads."""

    def __init__(self, source: str, tokens: Mapping[str, str] | None = None, where: str = "the chat template") -> None:
        """Takes Jinja and special tokens by name, such as `bos_token`. Raises: UserError: wrong syntax."""
        self.tokens, self.where, self._source = dict(tokens or {}), where, source
        self.has_blocks = BLOCKS.search(source) is not None
        try:
            self._template = Sandbox().from_string(source)
        except Exception as error:  # Python's compiler also raises, as for deep nesting
            line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise UserError(f"{where}{line}: {cut(str(error))}: correct the template") from None

    def render(self, messages: Messages, tools: Messages | None = None, *, prompt: bool = False) -> Rendered:
        """Renders a chat, with the next turn's header for `prompt`. Raises: TextError; UserError: a clock."""
        most = min(8 * MOST_STEPS, MOST_STEPS + 8 * _size(list(messages)))
        rendered, pieces = Rendered(most=most), list[str]()
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt}
        before = RENDERED.set(rendered)
        try:
            for piece in self._template.generate({**self.tokens, **given}):
                pieces.append(piece)
                rendered.length += len(piece)
        except Exception as error:  # of any type: a template is a program
            raise self._refusal(error) from None
        finally:
            RENDERED.reset(before)
        rendered.text = "".join(pieces)
        return rendered

    def _refusal(self, error: Exception) -> TextError | UserError:
        if isinstance(error, TextError):
            return error
        message = str(error)
        if isinstance(error, jinja2.UndefinedError):
            if message == f"'{CLOCK}' is undefined":
                remedy = "write a fixed date into a copy, and name it as `template`"
                return UserError(f"{self.where} calls {CLOCK}, and records must not depend on the clock: {remedy}")
            return TextError(REASON, "a field that the template reads is missing")
        # A template may put the chat's words into its message; rejects must not hold them.
        is_own = isinstance(error, jinja2.TemplateError) and message and message in self._source
        own = f": {cut(message, 200)}" if is_own else ""
        return TextError(REASON, f"the template raises {type(error).__name__}{own}")


def _to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, **more: Any) -> str:
    """Replaces Jinja's filter, which escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, **more)


def _refuse(message: Any) -> None:
    raise jinja2.TemplateError(str(message))


def read_template(config: Mapping[str, Any], *, tools: bool = False) -> str | None:
    """Returns the template of a `tokenizer_config.json`; of several the one for tools, or the default."""
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, dict)}
        template = (named.get("tool_use") if tools else None) or named.get("default")
    return template if isinstance(template, str) else None


def named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the special tokens of a `tokenizer_config.json`, by name: `bos_token`, `eos_token`."""
    named = {name: value for name, value in config.items() if name.endswith("_token")}
    found = {name: value.get("content") if isinstance(value, dict) else value for name, value in named.items()}
    return {name: token for name, token in found.items() if isinstance(token, str)}
