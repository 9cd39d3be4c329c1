"""Encodes JSON Lines with a `tokenizer.json` in batches, and keeps nothing: tokens.py DOCUMENTS MODEL OUTPUT."""

import json
import os
import sys
from itertools import islice

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer

ROWS = 1024


def main(documents: str, model: str) -> None:
    """Encodes all documents."""
    tokenizer = Tokenizer.from_file(model)
    with open(documents, encoding="utf-8") as lines:
        while rows := list(islice(lines, ROWS)):
            tokenizer.encode_batch_fast([json.loads(row)["text"] for row in rows])


main(*sys.argv[1:3])
