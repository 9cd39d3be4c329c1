"""Generates `chats.jsonl`, questions about a sentence with their answers, and `model/`: a tokenizer with its template.

python examples/chats/generate.py demo/chats/data
"""

import argparse
import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

WHO = ["the miller", "a fox", "the queen", "my neighbour", "the ferryman"]
WHAT = ["a golden key", "three loaves", "the blue lantern", "a letter"]
WHERE = ["in the forest", "by the river", "under the bridge", "at the market"]
SPECIAL = ["<pad>", "<unk>", "<|user|>", "<|assistant|>", "<|end|>"]
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|> "
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }} <|end|>{% endgeneration %}"
    "{% else %}{{ message.content }} <|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def chat(random: np.random.Generator) -> list[dict[str, str]]:
    """Makes a chat: who finds what and where, then one or two questions with their answers."""
    who, what, where = (str(random.choice(part)) for part in (WHO, WHAT, WHERE))
    asked = [("who ?", who), ("what ?", what), ("where ?", where)]
    chosen = [asked[index] for index in random.permutation(3)[: random.integers(1, 3)]]
    questions = [f"{who} finds {what} {where} . {chosen[0][0]}", *(question for question, _ in chosen[1:])]
    turns = zip(questions, (answer for _, answer in chosen), strict=True)
    return [
        {"role": role, "content": text}
        for question, answer in turns
        for role, text in (("user", question), ("assistant", answer))
    ]


def generate(folder: Path, chats: int = 3000) -> None:
    """Writes the chats and the model's files into a folder; the same number gives the same files."""
    (folder / "model").mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    rows = [{"id": f"{number:05}", "messages": chat(random)} for number in range(chats)]
    (folder / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    words = sorted({word for phrase in (*WHO, *WHAT, *WHERE, "finds who what where ? .") for word in phrase.split()})
    vocabulary = {word: id_ for id_, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(folder / "model/tokenizer.json"))
    config = {"pad_token": "<pad>", "eos_token": "<|end|>", "chat_template": TEMPLATE}
    (folder / "model/tokenizer_config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    print(f"{folder}: chats.jsonl with {chats} chats, and model/")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates chats and a tokenizer.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
