"""Made chats, published templates, and a byte-level tokenizer that is trained here: what the tests of chats share."""

import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = Path(__file__).parent / "chat_templates"
TEMPLATES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.jinja"))}
WITH_BLOCKS = ("smollm3_generation", "tulu_generation")
WITHOUT_SYSTEM = ("gemma", "mistral_v0_3")
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
SPECIAL = ["<pad>", *"<s> </s> <|im_start|> <|im_end|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|end|> "
           "<start_of_turn> <end_of_turn> <|user|> <|assistant|> <|system|> [INST] [/INST]".split()]  # fmt: skip
WORDS = [
    *"why is the sky blue Straße naïve ναι はい 🙂 👩‍👩‍👧 x=1; {% raw %} </b> assistant don't नमस्ते 1,024".split(),
    "\t",
    "user\n",
    "\n\n",
]
HEADERS = {
    "gemma": ("<start_of_turn>model\n", "{}<end_of_turn>\n"),
    "llama2": (" [/INST]", " {} </s>"),
    "llama3": ("<|start_header_id|>assistant<|end_header_id|>\n\n", "{}<|eot_id|>"),
    "mistral_v0_3": ("[/INST]", " {}</s>"),
    "olmo2": ("<|assistant|>\n", "{}</s>"),
    "phi3": ("<|assistant|>\n", "{}<|end|>\n"),
    "qwen2": ("<|im_start|>assistant\n", "{}<|im_end|>\n"),
    "qwen2_5_tools": ("<|im_start|>assistant\n", "{}<|im_end|>\n"),
    "smollm2": ("<|im_start|>assistant\n", "{}<|im_end|>\n"),
    "smollm3_generation": ("", "<|im_start|>assistant\n{}<|im_end|>\n"),
    "tulu_generation": ("<|assistant|>\n", "{}</s>"),
    "vicuna": (" ASSISTANT:", " {}</s>"),
    "zephyr": ("<|assistant|>\n", "{}</s>\n"),
}
"""By template, the header of an assistant's turn, and the text that the loss counts."""
STRIPPED = {
    **dict.fromkeys(("gemma", "llama2", "llama3", "mistral_v0_3", "vicuna"), str.strip),
    "smollm3_generation": lambda text: text.lstrip("\n"),
}


@lru_cache
def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator([" ".join(WORDS), *TEMPLATES.values()], trainer)
    made.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    return made


def chat(random: random.Random, name: str) -> list[dict[str, str]]:
    """Makes a chat that a template takes: maybe a system's turn, then turns that alternate and end with an answer."""
    said = [" ".join(random.choices(WORDS, k=random.randint(1, 9))) for _ in range(1 + 2 * random.randint(1, 4))]
    turns = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(said[1:])]
    has_system = name not in WITHOUT_SYSTEM and random.random() < 0.5
    return [{"role": "system", "content": said[0]}] * has_system + turns


def chats(name: str, count: int, seed: int = 0) -> list[list[dict[str, str]]]:
    source = random.Random(seed)
    return [chat(source, name) for _ in range(count)]


def trained_spans(name: str, messages: list[dict[str, str]], text: str) -> list[tuple[int, int]]:
    """Finds the assistant's text by the template's header, in plain Python."""
    header, body = HEADERS[name]
    spans, place = list[tuple[int, int]](), 0
    for message in messages:
        if message["role"] == "assistant":
            said = body.format("\0").replace("\0", STRIPPED.get(name, str)(message["content"]))
            if name == "smollm3_generation" and messages[0]["role"] != "system":
                said = said.replace("assistant\n", "assistant\n<think>\n\n</think>\n", 1)
            start = text.index(header + said, place) + len(header)
            spans.append((start, start + len(said)))
            place = spans[-1][1]
    if text.endswith("<|end|>\n</s>"):  # of Phi-3, after the last turn
        spans[-1] = (spans[-1][0], len(text))
    return spans


def mask_of(offsets: list[tuple[int, int]], spans: list[tuple[int, int]]) -> list[int]:
    """Marks tokens that overlap a span, in plain Python."""
    return [int(any(start < last and end > first for first, last in spans)) for start, end in offsets]


def write_model(folder: Path, template: str | None = "qwen2", **config: Any) -> Path:
    """Writes `tokenizer.json` and its config; returns the path of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    named = {} if template is None else {"chat_template": TEMPLATES[template]}
    given = {"tokenizer_class": "PreTrainedTokenizerFast", **TOKENS, **named, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(given))
    return folder / "tokenizer.json"
