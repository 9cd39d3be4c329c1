"""Chats to ids and a loss mask: every notation, published templates, and what makes a chat a reject."""

import json
import re
from typing import Any

import jinja2
import pytest

from recordmill.pipeline.build.texts import chat, template
from recordmill.pipeline.build.texts.chat import ChatEncoder, EncodedChat, canonical, with_template
from recordmill.pipeline.build.texts.template import ChatTemplate, named_tokens, read_template
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import Fault
from recordmill.transforms.base.description import Learned
from recordmill.transforms.texts.chat_spec import Chat
from tests.chats import TEMPLATES, TOKENS, WITH_BLOCKS, chats, mask_of, tokenizer, trained_spans
from tests.messages import assert_names, raises

ASKED = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
TWICE = [*ASKED, {"role": "user", "content": "why"}, {"role": "assistant", "content": "so"}]


def encoder(template: str, **options: Any) -> ChatEncoder:
    source, model = TEMPLATES.get(template, template), tokenizer().to_str().encode()
    chat = Chat(kind="chat", model="m.json", template="a.jinja", **options)
    return ChatEncoder(chat, Learned(template=source, tokens=TOKENS, model=model))


def encode(template: str, messages: Any, **options: Any) -> EncodedChat:
    encoded = encoder(template, **options).encode_batch([json.dumps(messages)])[0]
    assert isinstance(encoded, EncodedChat), encoded
    return encoded


def trained(template: str, messages: Any, **options: Any) -> str:
    """The text that the loss counts."""
    encoded = encode(template, messages, **options)
    return tokenizer().decode(
        [id_ for id_, counts in zip(encoded.ids, encoded.loss_mask, strict=True) if counts], skip_special_tokens=False
    )


def fault(template: str, messages: Any, **options: Any) -> tuple[str, str]:
    found = encoder(template, **options).encode_batch([json.dumps(messages)])[0]
    assert isinstance(found, Fault), found
    return found.reason, found.message


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_mask_is_the_assistants_text(name: str) -> None:
    """The other side finds the text by the template's header."""
    given, compiled = chats(name, 50), ChatTemplate(TEMPLATES[name], TOKENS)
    for messages, encoded in zip(given, encoder(name).encode_batch(list(map(json.dumps, given))), strict=True):
        assert isinstance(encoded, EncodedChat)
        text = compiled.render(messages).text
        encoding = tokenizer().encode(text, add_special_tokens=False)
        assert encoded.ids == encoding.ids
        assert encoded.loss_mask == mask_of(encoding.offsets, trained_spans(name, messages, text)), messages


def test_other_fields_of_a_message_stay() -> None:
    call = {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "add"}}]}
    messages = [call, {"role": "tool", "content": "2", "name": "add"}, {**ASKED[1], "reasoning": "hm"}]
    read = canonical(json.dumps(messages)).messages
    assert read[:2] == messages[:2]
    assert read[2]["reasoning_content"] == read[2]["thinking"] == "hm"


TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "a": 'x "<&>" é'}}}]


USER, SYSTEM = {"role": "user", "content": "hi"}, {"role": "system", "content": "be"}
CALLED = {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": None}}}]}  # fmt: skip
TOLD = {"role": "tool", "content": "2"}
ANSWER, BAD = ({"role": "assistant", "content": text} for text in ("ho", "no"))
CALL = {"name": "add", "arguments": '{"a": 1, "b": null}'}
ARGUMENTS = json.loads(CALL["arguments"])
FORMATS: dict[str, tuple[Any, list[dict[str, Any]], tuple[int, ...]]] = {
    "LLaMA-Factory, Alpaca": ({"instruction": "hi", "input": "", "output": "ho", "system": "be",
        "history": [["hi", "no"]]}, [SYSTEM, USER, BAD, USER, ANSWER], (2, 4)),
    "LLaMA-Factory, ShareGPT": ({"system": "be", "tools": TOOLS, "messages": [{"from": "human", "value": "hi"},
        {"from": "function_call", "value": json.dumps({"name": "add", "arguments": ARGUMENTS})},
        {"from": "observation", "value": "2"}, {"from": "gpt", "value": "ho"}]},
        [SYSTEM, USER, CALLED, TOLD, ANSWER], (2, 4)),
    "axolotl": ([USER, {**BAD, "training": False}, {**USER, "train": None}, {**ANSWER, "train": True}],
        [USER, BAD, USER, ANSWER], (3,)),
    "TRL": ({"prompt": [SYSTEM, USER, BAD, USER], "messages": [ANSWER]}, [SYSTEM, USER, BAD, USER, ANSWER], (4,)),
    "OpenAI": ({"messages": [USER, {**BAD, "weight": 0}, {**USER, "name": "x"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": CALL}]},
        {**TOLD, "tool_call_id": "c1"}, {**ANSWER, "weight": 1.0}], "tools": TOOLS},
        [USER, BAD, USER, {**CALLED, "content": None}, TOLD, ANSWER], (3, 5)),
    "OpenAI, functions": ([USER, {"role": "assistant", "content": "", "function_call": CALL}], [USER, CALLED], (1,)),
}  # fmt: skip


BLOCKS = (
    "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(("name", "header"), [("qwen2_5_tools", "<|im_start|>assistant\n"), (BLOCKS, "[assistant]")])
@pytest.mark.parametrize(("given", "messages", "counted"), FORMATS.values(), ids=FORMATS)
def test_formats_are_what_jinja_renders(
    given: Any, messages: Any, counted: tuple[int, ...], name: str, header: str
) -> None:
    """The other side has the settings of `apply_chat_template`, and tells turns by prefixes."""
    plain = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    plain.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    compiled = plain.from_string(re.sub("{% (end)?generation %}", "", TEMPLATES.get(name, name)))
    tools = given.get("tools") if isinstance(given, dict) else None
    renders = [compiled.render(messages=messages[:end], tools=tools) for end in range(len(messages) + 1)[1:]]
    turns = [text[len(before) :] for before, text in zip(["", *renders], renders, strict=False)]
    assert tokenizer().decode(encode(name, given).ids, skip_special_tokens=False) == renders[-1]
    assert trained(name, given) == "".join(turns[place].removeprefix(header) for place in counted)
    left = {place for place, each in enumerate(messages) if each["role"] == "assistant"}.difference(counted)
    assert trained(name, given, train="all") == "".join(
        header if place in left else turn for place, turn in enumerate(turns)
    )


SECRET = "Xylophon"
REJECTS: dict[str, tuple[str, Any, dict[str, Any], str, tuple[str, ...]]] = {
    "no messages": ("qwen2", [], {}, "malformed_chat", ()),
    "an unknown role": ("qwen2", [{"role": SECRET, "content": "a"}], {}, "malformed_chat", ("message 1", "`roles`")),
    "no role": ("qwen2", [{"content": SECRET}], {}, "malformed_chat", ("message 1",)),
    "no text": ("qwen2", [*ASKED, {"role": "user"}], {}, "malformed_chat", ("message 3", "`content`")),
    "no value": ("qwen2", [{"from": "human"}], {}, "malformed_chat", ("message 1", "`value`")),
    "a weight": ("qwen2", [ASKED[0], {**ASKED[1], "weight": 0.5}], {}, "malformed_chat", ("message 2", "weight", "1")),
    "a call": ("qwen2", [{"from": "function_call", "value": SECRET}], {}, "malformed_chat", ("message 1", "`name`")),
    "a deep call": ("qwen2", [{"from": "function_call", "value": "[" * 9_999}], {}, "malformed_chat", ("`name`",)),
    "history": ("qwen2", {"instruction": "a", "output": "b", "history": [["c"]]}, {}, "malformed_chat", ("`history`",)),
    "left out": ("qwen2", [ASKED[0], {**ASKED[1], "loss": False}], {"train": "last"}, "no_trainable_token", ()),
    "an image": ("qwen2", [{"role": "user", "content": [{"type": "image"}]}], {}, "malformed_chat", ("message 1",)),
    "two turns of one role": ("gemma", [ASKED[0], *ASKED], {}, "template_error", ("roles must alternate",)),
    "a number as words": ("{{ messages[0].content + 1 }}", ASKED, {}, "template_error", ("TypeError",)),
    "its words in an error": ("{{ raise_exception('bad: ' + messages[0].content) }}", [{"role": "user",
     "content": SECRET}], {}, "template_error", ()),
    "a missing field": ("{{ messages[0].a.b }}", ASKED, {}, "template_error", ("missing",)),
    "a first answer": ("qwen2", ASKED[1:], {}, "template_error", ("begins with the assistant",)),
    "a first answer, which the template raises at": ("vicuna", ASKED[1:], {}, "template_error", ()),
    "no answer": ("qwen2", ASKED[:1], {}, "no_trainable_token", ()),
    "an answer that is cut off": ("qwen2", ASKED, {"max_length": 3}, "no_trainable_token", ("`max_length`",)),
}  # fmt: skip


@pytest.mark.parametrize(("template", "messages", "options", "reason", "facts"), REJECTS.values(), ids=REJECTS)
def test_rejects(template: str, messages: Any, options: dict[str, Any], reason: str, facts: tuple[str, ...]) -> None:
    found, message = fault(template, messages, **options)
    assert found == reason
    assert_names(message, *facts)
    assert SECRET not in message


CHANGED = (
    "{% for m in messages %}{{ m.role }}{% if loop.last or m.role == 'user' %}: {{ m.content }}{% endif %};{% endfor %}"
)
PROMPT = "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}{% if add_generation_prompt %}!{% endif %}"


@pytest.mark.parametrize("template", [CHANGED, PROMPT], ids=["a turn that changes", "another header"])
def test_a_template_whose_turns_are_no_prefixes_ends_the_build(template: str) -> None:
    with raises(UserError, "a.jinja", "{% generation %}", "`template`", "train: all"):
        encoder(template).encode_batch([json.dumps(TWICE)])
    assert encode(template, TWICE, train="all").ids


def test_another_header_ends_the_build_before_a_row_is_read() -> None:
    with raises(UserError, "a.jinja", "{% generation %}"):
        files(config="{}", template=PROMPT)
    assert files(config="{}", template=CHANGED).template == CHANGED, "one answer has a span"
    assert trained(CHANGED, ASKED) == "assistant: ho;"


def test_templates_have_no_clock() -> None:
    with raises(UserError, "a.jinja", "strftime_now", "`template`"):
        ChatTemplate("{{ strftime_now('%d') }}", where="a.jinja").render(ASKED)
    guarded = "{% if strftime_now is defined %}now{% else %}then{% endif %}"
    assert ChatTemplate(guarded).render(ASKED).text == "then"


DOUBLED = "{{% set ns = namespace(x={}) %}}{{% for _ in range(99) %}}{{% set ns.x = {} %}}{{% endfor %}}{{{{ ns.x }}}}"
ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a loop that skips all": "{% for a in range(99999) %}{% for b in range(99999) if no %}{% endfor %}{% endfor %}",
    "macros": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(80) }}",
    "joined texts": DOUBLED.format("'a'", "ns.x ~ ns.x"),
    "added texts": DOUBLED.format("'a'", "ns.x + ns.x"),
    "lists in lists": DOUBLED.format("1", "[ns.x, ns.x]"),
    "a product": "{{ 'x' * 9999999999 }}",
    "a list's product": "{{ 9999999999 * [1] }}",
    "stripped letters": "{% set x = 'a' * 9999 ~ 'b' %}{{ x.strip(x) }}{{ x | trim(x) }}{{ x.rfind(x[1:]) }}",
    "zeros": "{{ 'a'.zfill(9999999999) }}",
    "replaced letters": "{% set x = 'a' * 9999 %}{{ x.replace('a', x) }}{{ x | replace('a', x) }}",
    "a wide text": "{{ 'a' | center(9999999999) }}",
    "many slices": "{{ [1] | slice(9999999999) | list }}",
    "a filled batch": "{{ [1] | batch(9999999999, 1) | list }}",
    "a wide indent": "{{ 'a' | indent(9999999999) }}",
    "a wide JSON": "{{ [1] | tojson(indent=9999999999) }}",
    "a long separator": "{{ range(9999) | map('string') | join('x' * 9999) }}",
    "comparisons": "{% set x = 'a' * 99999 %}{% for _ in range(9999) %}{{ x == x ~ '' }}{% endfor %}",
    "texts of its own": "{% for a in range(9999) %}" + "x" * 9999 + "{% endfor %}",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_work_without_end_is_a_reject_after_so_many_steps(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "MOST_STEPS", 20_000)
    reason, message = fault(source, ASKED, train="all")
    assert reason == "template_error"
    assert_names(message, "2", ",", "steps")


def test_what_a_template_lists_is_what_jinja_computes() -> None:
    parts = ["2.5 | round", "'a b' | wordcount", "3 is odd", "4 is even", "6 is divisibleby(4)", "'a' | center(5)"]
    parts += ["[1, 2] | sum", "true is sameas true", "'7'.isnumeric()", "' a '.strip()", "'aba'.rindex('a')"]
    parts += ["[1, 2, 3] | batch(2, 0) | list", "[1, 2, 3] | slice(2) | list", "'a,b'.split(',')", "7 % 4"]
    source = "".join(f"{{{{ {part} }}}};" for part in parts)
    assert ChatTemplate(source).render(ASKED).text == jinja2.Environment().from_string(source).render()


def test_a_long_chat_has_more_steps_and_separators_cost_none() -> None:
    long = [{"role": "user", "content": "x" * 500}, {"role": "assistant", "content": "ho"}] * 400
    copies = (
        "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.content %}{% endfor %}{{ ns.t }}"
    )
    assert len(ChatTemplate(copies).render(long).text) == 400 * 502
    source = "{{ messages | tojson(separators=(',', ':')) }}"
    assert json.loads(ChatTemplate(source).render(long * 3).text) == long * 3


def test_the_turns_of_a_chat_have_steps_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MOST_STEPS", 2_000)
    assert encode("qwen2", ASKED).ids
    reason, message = fault("qwen2", ASKED * 20)
    assert reason == "template_error"
    assert_names(message, "2,000 steps", "turns")


@pytest.mark.parametrize("source", [
    "{{ 9 ** 9 ** 9 }}", "{{ '%9999999999d' % 1 }}", "{{ '{:9999999999}'.format(1) }}",
    "{{ raise_exception([1]) }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", DOUBLED.format("9", "ns.x * ns.x"),
    "{{ range }}", "{{ 'a'.upper }}", "{{ 'a'.upper ~ '' }}", "{{ [range] | string }}", "{{ dict(a=range) }}",
    "{{ ['a'] | map(attribute='upper') | list }}", "{{ 'a' + range }}", "{{ lipsum() }}", "{{ cycler(1) }}",
    "{% for key in {'a': 1, 'b': 2}.keys() - {}.keys() %}{{ key }}{% endfor %}", "{{ namespace() }}", "{{ self }}",
    "{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}",
])  # fmt: skip
def test_a_template_has_no_numbers_addresses_or_functions_but_the_listed(source: str) -> None:
    assert fault(source, ASKED, train="all")[0] == "template_error"


def test_a_template_that_cannot_run_is_told_before_a_row_is_read() -> None:
    for source in ("{{ [1, 2] | random }}", "{{ " + "(" * 999 + "1" + ")" * 999 + " }}"):
        with raises(UserError, "a.jinja", "correct"):
            ChatTemplate(source, where="a.jinja")
    with raises(UserError, "a.jinja", "line 2"):
        ChatTemplate("\n{% for %}", where="a.jinja")


def test_templates_and_special_tokens_of_a_config() -> None:
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    assert read_template({"chat_template": "a"}) == "a"
    assert read_template({"chat_template": several}) == "a"
    assert read_template({"chat_template": several}, tools=True) == "b"
    config = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": True, "unk_token": None}
    assert named_tokens(config) == {"bos_token": "<s>", "eos_token": "</s>"}


def files(**given: str) -> Learned:
    options = Chat(kind="chat", model="m.json", config="c.json", template="a.jinja" if "template" in given else None)
    return with_template(options, lambda path: given["template" if path == "a.jinja" else "config"].encode())


def test_a_template_beside_the_model() -> None:
    config = json.dumps({"chat_template": "a", "eos_token": "</s>"})
    assert (files(config=config).template, files(config=config).tokens) == ("a", {"eos_token": "</s>"})
    assert files(config=config, template="b").template == "b"
    for given, facts in (
        ({"config": "{}"}, ("c.json", "chat_template", "`template`")),
        ({"config": "{"}, ("c.json", "JSON")),
        ({"config": config, "template": "{% if %}"}, ("a.jinja", "line 1")),
    ):
        with raises(UserError, *facts):
            files(**given)


def test_blocks_are_found() -> None:
    assert [name for name, source in TEMPLATES.items() if ChatTemplate(source).has_blocks] == list(WITH_BLOCKS)
