"""Chats to ids and a loss mask: messages of any notation, the model's template, its tokenizer.

The mask is 1 where the loss counts. Spans of the assistant's text come from the template's generation blocks, or from
prefixes: a chat's text up to a turn begins the text of the whole chat.

>>> canonical('[{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]').messages
[{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'ho'}]
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import Fault, Faults
from recordmill.transforms.base.description import Learned
from recordmill.transforms.texts.chat_spec import Chat as ChatFeature
from recordmill.transforms.texts.text_stored import LOSS_MASK, MESSAGES, ROLES, TRAINED, WHOLE, TextError
from recordmill.transforms.texts.tokenizers import TextTokenizer

if TYPE_CHECKING:
    from recordmill.pipeline.build.texts.template import ChatTemplate, Rendered  # needs Jinja

NOTATIONS = (("role", "content"), ("from", "value"))
CALL = "function_call"  # a role of ShareGPT, and a key of OpenAI's older messages
ALIASES = {"human": "user", "gpt": "assistant", CALL: "assistant", "observation": "tool"}  # ShareGPT's
Spans = list[tuple[int, int]]
REASONING = ("reasoning_content", "thinking", "reasoning")
MOST_STEPS = 1 << 26  # of all renders of a chat: 11 s with a published template, which renders 1,000 turns
PROBE = [{"role": role, "content": "a"} for role in ("user", "assistant")]
BEGINS = "the chat begins with the assistant, and the template has no header for that"
UNTOLD = (
    "renders a turn differently when more turns follow, or another header than `add_generation_prompt` adds: the "
    "assistant's text cannot be told. Put {% generation %} and {% endgeneration %} around it in a copy of the "
    "template, and name that as `template`, or choose `train: all`"
)


@dataclass(frozen=True)
class Chat:
    """A chat in one notation."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class EncodedChat:
    """A chat's ids, for each 1 if the loss counts there, else 0; the roles of its messages; its ids before the cut."""

    ids: list[int]
    loss_mask: list[int]
    roles: list[str] = field(default_factory=list)
    whole: int = 0


def canonical(text: str, roles: Mapping[str, str] | None = None) -> Chat:
    """Reads the JSON of messages, or of an object of `messages` or Alpaca's fields, `prompt`, `system`, `tools`.

    `roles` adds names. A prompt's messages come first, and are not trained; a system's text is the first message.
    Raises: TextError: no message, an unknown role, or a message without text.
    """
    given = json.loads(text)
    fields = given if isinstance(given, dict) else {"messages": given}
    if "messages" in fields:
        messages = fields["messages"]
    else:
        messages = []
        for said in fields.get("history") or ():
            if not isinstance(said, list) or len(said) != 2:
                raise TextError("malformed_chat", "`history` should have lists of a question and its answer")
            messages += [{"role": "user", "content": said[0]}, {"role": "assistant", "content": said[1]}]
        asked = [fields[name] for name in ("instruction", "input") if fields.get(name)]  # with a blank line between
        messages.append({"role": "user", "content": "\n\n".join(asked)})
        messages.append({"role": "assistant", "content": fields["output"]})
    before, known = fields.get("prompt") or [], {role: role for role in ROLES} | ALIASES | dict(roles or {})
    read = [_message(place, message, known) for place, message in enumerate([*before, *messages], 1)]
    if not read:
        raise TextError("malformed_chat", "the chat has no messages")
    for message in read[: len(before)]:
        message[TRAINED[0]] = 0
    if fields.get("system") and read[0]["role"] != "system":
        read.insert(0, {"role": "system", "content": fields["system"]})
    return Chat(read, fields.get("tools") or None)


def _message(place: int, message: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TextError("malformed_chat", f"message {place} is no object: give it a role and a text")
    role_key, text_key = next((keys for keys in NOTATIONS if message.get(keys[0]) is not None), NOTATIONS[0])
    role = message.get(role_key)
    if not isinstance(role, str) or role not in known:
        # A role may be a person's name, and rejects hold no values.
        raise TextError("malformed_chat", f"message {place} has an unknown role, or none: name it in `roles`")
    rest = {name: value for name, value in message.items() if name not in (role_key, text_key, *NOTATIONS[0])}
    content = message.get(text_key)
    if content is not None and not isinstance(content, str):  # OpenAI's parts of text are joined
        parts = content if isinstance(content, list) else [content]
        texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
        if not all(isinstance(text, str) for text in texts):
            raise TextError("malformed_chat", f"message {place} has content other than text")
        content = "".join(map(str, texts))
    if role == CALL:
        try:
            calls = json.loads(content or "")  # a call's name and arguments, or a list of these
            functions = [{"name": call["name"], **call} for call in (calls if isinstance(calls, list) else [calls])]
        except (KeyError, TypeError, ValueError, RecursionError):
            raise TextError("malformed_chat", f"message {place} should be JSON of `name` and `arguments`") from None
        rest["tool_calls"], content = [{"type": "function", "function": function} for function in functions], ""
    elif isinstance(rest.get(CALL), Mapping) and not rest.get("tool_calls"):  # OpenAI's older notation
        rest["tool_calls"] = [{"type": "function", "function": rest.pop(CALL)}]
    if any(rest.get(name) not in (None, 0, 1) for name in TRAINED):
        raise TextError("malformed_chat", f"message {place}: {', '.join(TRAINED)} should be 0 or 1, false or true")
    if content is None and not rest.get("tool_calls"):
        raise TextError("malformed_chat", f"message {place} has no `{text_key}`")
    if calls := rest.get("tool_calls"):
        rest["tool_calls"] = [_call(call) for call in calls]
    stated = {"content": content} if text_key in message else {}
    thought = next((rest[name] for name in REASONING if rest.get(name) is not None), None)
    named = {} if thought is None else dict.fromkeys(REASONING[:2], thought)  # as `apply_chat_template` does
    return {"role": known[role], **stated, **rest, **named}


def _call(call: Any) -> Any:
    """Parses arguments in a JSON string, OpenAI's notation, to the object that templates expect."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}
    except (ValueError, RecursionError):
        return call


def with_template(options: ChatFeature, read: Callable[[str], bytes]) -> Learned:
    """Reads the files beside the model. Raises: UserError: one is invalid, or there is no template."""
    jinja, where = _jinja(), options.config_path
    try:
        config = json.loads(read(where))
    except ValueError:
        raise UserError(f"{where} is not JSON: copy the model's files again") from None
    config = config if isinstance(config, dict) else {}
    try:
        given = None if options.template is None else read(options.template).decode()
    except UnicodeDecodeError:
        raise UserError(f"{options.template} is not UTF-8 text: name a file of Jinja as `template`") from None
    source = given or jinja.read_template(config, tools=options.tools is not None)
    if source is None:
        raise UserError(f"{where} has no chat_template: name a file of Jinja as `template`")
    found = Learned(template=source, tokens=jinja.named_tokens(config))
    with suppress(TextError):  # before any row is read
        trained_spans(_template(options, found), Chat(PROBE), options.train)
    return found


def _jinja() -> Any:
    """Loads the module that needs Jinja. Raises: UserError: it is missing."""
    try:
        from recordmill.pipeline.build.texts import template
    except ImportError:
        raise UserError('the package jinja2 is missing: pip install "recordmill[tokens]"') from None
    return template


def _template(options: ChatFeature, learned: Learned) -> "ChatTemplate":
    assert learned.template is not None  # noqa: S101 - the driver reads every template
    where = options.template or options.config_path
    made: ChatTemplate = _jinja().ChatTemplate(learned.template, learned.tokens, where)
    return made


def trained_spans(template: "ChatTemplate", chat: Chat, train: str) -> tuple[str, Spans]:
    """Renders a chat; also returns the spans to train on. Raises: TextError; UserError: a template hides them."""
    rendered = template.render(chat.messages, chat.tools)
    turns = [place for place, message in enumerate(chat.messages) if message["role"] == "assistant"]
    left = [place for place in turns if any(chat.messages[place].get(name) == 0 for name in TRAINED)]
    if train == "all":
        holes = [_turn(template, chat, place, rendered) for place in left]
        ends = [0, *(end for spans in holes for span in spans for end in span), len(rendered.text)]
        return rendered.text, [span for span in zip(ends[::2], ends[1::2], strict=True) if span[0] < span[1]]
    if template.has_blocks and not left:
        return rendered.text, rendered.spans[-1:] if train == "last" else rendered.spans
    kept = [place for place in (turns[-1:] if train == "last" else turns) if place not in left]
    return rendered.text, [span for place in kept for span in _turn(template, chat, place, rendered)]


def _turn(template: "ChatTemplate", chat: Chat, place: int, whole: "Rendered") -> Spans:
    """Returns the spans of an assistant's turn: its blocks, or one by prefixes."""
    try:
        header = template.render(chat.messages[:place], chat.tools, prompt=True)
    except TextError as error:
        raise error if place else TextError(error.reason, BEGINS) from None
    turn = template.render(chat.messages[: place + 1], chat.tools)
    whole.steps += header.steps + turn.steps
    if whole.steps > MOST_STEPS:
        raise TextError("template_error", f"the template takes more than {MOST_STEPS:,} steps for all turns")
    if template.has_blocks:
        return whole.spans[len(header.spans) : len(turn.spans)]
    before, after, text = header.text, turn.text, whole.text
    end = template.tokens.get("eos_token", "")
    if not text.startswith(after) and end:
        after = after.removesuffix(end)  # some templates end a whole chat with it
    if place == 0 and not after.startswith(before):
        raise TextError("template_error", BEGINS)
    if not (text.startswith(after) and after.startswith(before)):
        raise UserError(f"{template.where} {UNTOLD}")
    return [(len(before), len(after))]


class ChatEncoder:
    """Encodes chats; may be used by several threads."""

    def __init__(self, options: ChatFeature, learned: Learned) -> None:
        """Raises: UserError: the model or the template is invalid."""
        self._options, self._template = options, _template(options, learned)
        self._tokenizer = TextTokenizer(learned.model or b"", options.tokenizer_options, options.model)

    def encode_batch(self, texts: Sequence[str]) -> list[EncodedChat | Fault]:
        """Encodes chats, the JSON of `canonical`; "" has no ids. Raises: UserError: as `trained_spans`."""
        rendered = list[tuple[str, Spans, list[str]] | Fault]()
        for text in texts:
            try:
                chat = canonical(text, self._options.roles) if text else Chat([])
                made = trained_spans(self._template, chat, self._options.train) if text else ("", [])
                rendered.append((*made, [message["role"] for message in chat.messages]))
            except TextError as error:
                rendered.append(Fault(error.reason, error.message))
        encodings = iter(self._tokenizer.encodings([each[0] for each in rendered if not isinstance(each, Fault)]))
        return [each if isinstance(each, Fault) else self._encoded(next(encodings), *each[1:]) for each in rendered]

    def columns(self, column: pa.Array) -> tuple[dict[str, pa.Array], Faults]:
        """Returns the ids, masks and facts of a column of chats, empty for rows at fault; and the faults by row."""
        encoded = self.encode_batch(column.cast(pa.string()).to_pylist())
        faults = {row: each for row, each in enumerate(encoded) if isinstance(each, Fault)}
        good = [EncodedChat([], []) if isinstance(each, Fault) else each for each in encoded]
        parts = {"": [each.ids for each in good], LOSS_MASK: [each.loss_mask for each in good]}
        facts = {MESSAGES: pa.array([each.roles for each in good], pa.list_(pa.string()))}
        facts[WHOLE] = pa.array([each.whole for each in good], pa.int64())
        return {part: pa.array(lists, pa.list_(pa.int64())) for part, lists in parts.items()} | facts, faults

    def _encoded(self, encoding: Any, spans: Spans, roles: list[str]) -> EncodedChat | Fault:
        mask, place, length = [0] * len(encoding.ids), 0, self._options.max_length
        for token, (start, end) in enumerate(encoding.offsets):  # 1 where it overlaps a span, as in Hugging Face
            while place < len(spans) and spans[place][1] <= start:
                place += 1
            mask[token] = int(place < len(spans) and spans[place][0] < end)
        kept = slice(length) if length is None or self._options.truncate == "end" else slice(-length, None)
        if roles and not any(mask[kept]):
            cut = f": `max_length` cuts all {sum(mask)} off" if any(mask) else ""
            return Fault("no_trainable_token", f"the chat has no token to train on{cut}")
        return EncodedChat(encoding.ids[kept], mask[kept], roles, len(mask))
