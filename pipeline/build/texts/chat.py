"""Chats to ids and a loss mask: messages of any notation, the model's template, its tokenizer.

The mask is 1 where the loss counts. Spans of the assistant's text come from the template's generation blocks, or from
prefixes: a chat's text up to a turn begins the text of the whole chat, and the header of an assistant's turn is what
`add_generation_prompt` adds.

>>> canonical('[{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]').messages
[{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'ho'}]
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Encoding, Tokenizer

from recordmill.pipeline.build.texts.template import ChatTemplate, RefusedChatError, Spans
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import Fault
from recordmill.transforms.contract.kinds.chat import ROLES, ChatOptions

NOTATIONS = (("role", "content"), ("from", "value"))
ALIASES = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}
"""ShareGPT's roles."""
REASONING = ("reasoning_content", "thinking", "reasoning")


class ChatError(Exception):
    """A chat cannot be stored; the fault says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(reason, message)


@dataclass(frozen=True)
class Chat:
    """A chat in one notation."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class EncodedChat:
    """A chat's ids, and for each 1 if the loss counts there, else 0."""

    ids: list[int]
    loss_mask: list[int]


def canonical(text: str, roles: Mapping[str, str] | None = None) -> Chat:
    """Reads the JSON of messages, or of an object of `messages` and `tools` or Alpaca's fields; `roles` adds names.

    Raises: ChatError: no message, an unknown role, or a message without text.
    """
    given = json.loads(text)
    fields = given if isinstance(given, dict) else {"messages": given}
    messages = fields["messages"] if "messages" in fields else list(_of_instruction(fields))
    known = {role: role for role in ROLES} | ALIASES | dict(roles or {})
    read = [_message(place, message, known) for place, message in enumerate(messages, 1)]
    if not read:
        raise ChatError("malformed_chat", "the chat has no messages")
    return Chat(read, fields.get("tools") or None)


def _of_instruction(fields: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yields the messages of Alpaca's fields: an input follows the instruction after a blank line."""
    if fields.get("system"):
        yield {"role": "system", "content": fields["system"]}
    asked = [fields[name] for name in ("instruction", "input") if fields.get(name)]
    yield {"role": "user", "content": "\n\n".join(asked)}
    yield {"role": "assistant", "content": fields["output"]}


def _message(place: int, message: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    role_key, text_key = next((keys for keys in NOTATIONS if keys[0] in message), NOTATIONS[0])
    role = message.get(role_key)
    if not isinstance(role, str) or role not in known:
        # A role may be a person's name, and rejects hold no values.
        raise ChatError("malformed_chat", f"message {place} has an unknown role, or none: name it in `roles`")
    rest = {name: value for name, value in message.items() if name not in (role_key, text_key)}
    content = _content(place, message.get(text_key))
    if content is None and not rest.get("tool_calls"):
        raise ChatError("malformed_chat", f"message {place} has no `{text_key}`")
    if calls := rest.get("tool_calls"):
        rest["tool_calls"] = [_call(call) for call in calls]
    return {"role": known[role], **({} if content is None else {"content": content}), **_thoughts(rest), **rest}


def _thoughts(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Names reasoning as templates read it, as `apply_chat_template` does."""
    thought = next((rest[name] for name in REASONING if name in rest), None)
    return {} if thought is None else {"reasoning_content": thought, "thinking": thought}


def _content(place: int, content: Any) -> str | None:
    """Returns a message's text; OpenAI's parts of text are joined."""
    if content is None or isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ChatError("malformed_chat", f"message {place} has content other than text")
    return "".join(map(str, texts))


def _call(call: Any) -> Any:
    """Parses arguments in a JSON string, OpenAI's notation, to the object that templates expect."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}
    except ValueError:
        return call


class ChatEncoder:
    """Encodes chats; may be used by several threads."""

    def __init__(self, options: ChatOptions, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        """Takes a tokenizer that neither pads nor cuts."""
        self._options, self._template, self._tokenizer = options, template, tokenizer

    def __call__(self, text: str) -> EncodedChat:
        """Encodes a chat, the JSON of `canonical`; an empty string has no ids.

        Raises: ChatError: the row is a reject. UserError: the template fits no chat.
        """
        if not text:
            return EncodedChat([], [])
        chat = canonical(text, self._options.roles)
        try:
            rendered, spans = self._spans(chat)
        except RefusedChatError as error:
            raise ChatError("template_error", str(error)) from None
        encoding = self._tokenizer.encode(rendered, add_special_tokens=False)
        mask = token_mask(encoding, spans)
        kept = slice(None) if self._options.max_length is None else self._kept(self._options.max_length)
        if not any(mask[kept]):
            cut = f": `max_length` cuts all {sum(mask)} off" if any(mask) else ""
            raise ChatError("no_trainable_token", f"the chat has no token to train on{cut}")
        return EncodedChat(encoding.ids[kept], mask[kept])

    def _kept(self, length: int) -> slice:
        return slice(length) if self._options.truncate == "end" else slice(-length, None)

    def _spans(self, chat: Chat) -> tuple[str, Spans]:
        """Renders a chat; also returns the spans of the text to train on."""
        rendered = self._template.render(chat.messages, chat.tools)
        if self._options.train == "all":
            return rendered.text, [(0, len(rendered.text))]
        turns = [place for place, message in enumerate(chat.messages) if message["role"] == "assistant"]
        if self._template.has_blocks:
            spans = rendered.spans
        elif self._options.train == "last":
            return rendered.text, [self._turn(chat, place, rendered.text) for place in turns[-1:]]
        else:
            spans = [self._turn(chat, place, rendered.text) for place in turns]
        return rendered.text, spans[-1:] if self._options.train == "last" else spans

    def _turn(self, chat: Chat, place: int, text: str) -> tuple[int, int]:
        """Returns the span of an assistant's turn by prefixes."""
        before = self._template.render(chat.messages[:place], chat.tools, prompt=True).text
        after = self._template.render(chat.messages[: place + 1], chat.tools).text
        end = self._template.tokens.get("eos_token", "")
        if not text.startswith(after) and end:
            after = after.removesuffix(end)  # some templates end a whole chat with it
        if not (text.startswith(after) and after.startswith(before)):
            raise UserError(NO_PREFIXES)
        return len(before), len(after)


NO_PREFIXES = (
    "the chat template renders a turn differently when more turns follow, or another header than "
    "`add_generation_prompt` adds: the assistant's tokens cannot be told. Put {% generation %} and {% endgeneration %} "
    "around the assistant's text in a copy of the template and name it as `template`, or choose `train: all`"
)


def token_mask(encoding: Encoding, spans: Spans) -> list[int]:
    """Marks the tokens that overlap a span: 1, else 0; as `apply_chat_template` does."""
    mask, place = [0] * len(encoding.ids), 0
    for token, (start, end) in enumerate(encoding.offsets):
        while place < len(spans) and spans[place][1] <= start:
            place += 1
        mask[token] = int(place < len(spans) and spans[place][0] < end)
    return mask


