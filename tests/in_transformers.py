"""Encodes chats by `transformers` for `tests/test_chat_peers.py`: a line of JSON a chat, from stdin to stdout.

`python tests/in_transformers.py FOLDER < chats.jsonl`; the folder holds a tokenizer with its template.
"""

import json
import sys
from typing import Any

from transformers import AutoTokenizer


def by_prefixes(tokenizer: Any, messages: list[dict[str, Any]], tools: Any, text: str) -> list[tuple[int, int]]:
    """The spans of the assistant's text: each render of the first messages begins the next one."""
    spans = []
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        begun = tokenizer.apply_chat_template(messages[:place], tools=tools, tokenize=False, add_generation_prompt=True)
        done = tokenizer.apply_chat_template(messages[: place + 1], tools=tools, tokenize=False)
        if not text.startswith(done):
            done = done[: -len(tokenizer.eos_token)]
        assert text.startswith(begun), text
        assert text.startswith(done), text
        spans.append((len(begun), len(done)))
    return spans


def main(folder: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    has_blocks = "{% generation %}" in tokenizer.chat_template
    for line in sys.stdin:
        chat = json.loads(line)
        messages, tools = chat["messages"], chat.get("tools")
        done = tokenizer.apply_chat_template(
            messages, tools=tools, return_dict=True, return_assistant_tokens_mask=has_blocks
        )
        if has_blocks:
            mask = done["assistant_masks"]
        else:
            text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
            spans = by_prefixes(tokenizer, messages, tools, text)
            offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            mask = [int(any(a < last and b > first for first, last in spans)) for a, b in offsets]
        sys.stdout.write(json.dumps({"ids": done["input_ids"], "mask": mask}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
