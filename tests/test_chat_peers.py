"""Chats have the ids and the mask that `transformers` gives them: `make test-frameworks`.

`RECORDMILL_FRAMEWORKS` names the Python of an environment with `examples/frameworks/requirements.lock`.
"""

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipeline.build.texts.chat import ChatEncoder, EncodedChat
from recordmill.transforms.base.description import Learned
from recordmill.transforms.texts.chat_spec import Chat
from tests.chats import TEMPLATES, TOKENS, chats, tokenizer, write_model

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(900)]
CHATS = 1000
TOOLS = [{"type": "function", "function": {"name": "add", "description": "a < b & 'é'", "parameters": {"a": [1, 2]}}}]


def made(name: str) -> list[dict[str, Any]]:
    """Chats of two turns or more; a third of Qwen's call tools."""
    source, found = random.Random(1), list[dict[str, Any]]()
    for messages in chats(name, CHATS, seed=1):
        if name != "qwen2_5_tools" or source.random() < 0.6:
            found.append({"messages": messages})
            continue
        call = {"type": "function", "function": {"name": "add", "arguments": {"a": [1, "é"], "b": None}}}
        called = {"role": "assistant", "content": "", "tool_calls": [call] * source.randint(1, 2)}
        results = [{"role": "tool", "content": "3\n"}] * len(called["tool_calls"])
        found.append({"messages": [*messages[:-1], called, *results, messages[-1]], "tools": TOOLS})
    return found


@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_and_mask_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    python = os.environ.get("RECORDMILL_FRAMEWORKS")
    if not python:
        pytest.skip("RECORDMILL_FRAMEWORKS names no Python with transformers: make test-frameworks")
    folder, given = write_model(tmp_path / "model", name).parent, made(name)
    lines = "".join(json.dumps(chat) + "\n" for chat in given)
    command = [python, str(Path(__file__).with_name("in_transformers.py")), str(folder)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    theirs = [json.loads(line) for line in done.stdout.splitlines()]
    model = tokenizer().to_str().encode()
    learned = Learned(template=TEMPLATES[name], tokens=TOKENS, model=model)
    encoder = ChatEncoder(Chat(kind="chat", model="m.json"), learned)
    ours = encoder.encode_batch(list(map(json.dumps, given)))
    assert [(each.ids, each.loss_mask) for each in ours if isinstance(each, EncodedChat)] == [
        (each["ids"], each["mask"]) for each in theirs
    ]
