"""Tokenizers' models as a version holds them: their pieces by id, their special ids, and their files.

A model that we trained has the ids of any text: 0 pads, 1 is unknown, then begin and end. A given one keeps its own.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sentencepiece import SentencePieceProcessor

from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.contract.kinds.text import SpecialIds, TextOptions

FOLDER = "tokenizers"
SPECIAL_PIECES = {"padding": "[PAD]", "unknown": "[UNK]", "begin": "[CLS]", "end": "[SEP]"}
"""The special pieces as BERT writes them in a file of WordPieces."""
SUFFIXES = {"wordpiece": "vocab.txt", "sentencepiece": "model"}
"""The ends of the models' file names, by tokenizer."""
LINE_BREAKS = str.maketrans({"\n": "<0x0A>", "\r": "<0x0D>"})


@dataclass(frozen=True)
class TokenizerModel:
    """A model that has been read."""

    data: bytes
    """The bytes that the graph holds: a SentencePiece model, or WordPieces, one a line."""
    suffix: str
    pieces: tuple[str, ...]
    """By id."""
    special: SpecialIds

    def complete(self, options: TextOptions) -> TextOptions:
        """Returns a text's options with this model."""
        return replace(options, model_bytes=self.data, model_ids=self.special)

    def statistics(self, owner: str) -> dict[str, Any]:
        """Returns the statistics that `Text.describe` needs; `owner` is the feature that the model is named after."""
        return {
            "model": f"{FOLDER}/{owner}.{self.suffix}",
            "vocabulary": f"{FOLDER}/{vocabulary_name(owner)}",
            "words": len(self.pieces) - self.special.first,
            "special_ids": asdict(self.special),
        }

    def files(self, owner: str) -> dict[str, bytes]:
        """Its files in a version by their paths: the model, and the pieces from `first_id` on, one a line."""
        paths = self.statistics(owner)
        lines = [piece.translate(LINE_BREAKS) + "\n" for piece in self.pieces[self.special.first :]]
        return {paths["model"]: self.data, paths["vocabulary"]: "".join(lines).encode()}


def read_model(data: bytes, options: TextOptions, where: str = "the model") -> TokenizerModel:
    """Reads the model of a feature with these options; `where` names it in messages.

    Raises:
        UserError: it is no model of the feature's tokenizer, or lacks a piece that the options ask for.
    """
    return READERS[options.tokenizer](data, options, where)


def tokenizer(context: BuildContext, owner: str) -> TokenizerModel:
    """The model of a build that is named after this feature."""
    options = context.texts()[owner]
    return read_model(options.model_bytes or b"", options)


def _read_wordpiece(data: bytes, options: TextOptions, where: str) -> TokenizerModel:
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is no file of WordPieces: it is not UTF-8 at byte {error.start}") from None
    pieces = tuple(text.split("\n"))
    ids: dict[str, int] = {}
    for id_, piece in enumerate(pieces):
        if not piece or piece in ids:
            what = "stands there twice" if piece else "is blank"
            raise UserError(f"{where}, line {id_ + 1}: the piece {cut(repr(piece))} {what}: each line is one piece")
        ids[piece] = id_
    special = {name: ids.get(piece, -1) for name, piece in SPECIAL_PIECES.items()}
    return TokenizerModel(
        "".join(f"{piece}\n" for piece in pieces).encode(),
        SUFFIXES["wordpiece"],
        pieces,
        _special(special, len(pieces), options, where),
    )


def _read_sentencepiece(data: bytes, options: TextOptions, where: str) -> TokenizerModel:
    try:
        model = SentencePieceProcessor()
        model.LoadFromSerializedProto(data)
    except RuntimeError:
        raise UserError(f"{where} is no SentencePiece model: give the file that its trainer calls `….model`") from None
    pieces = tuple(model.id_to_piece(list(range(model.vocab_size()))))
    special = {"padding": model.pad_id(), "unknown": model.unk_id(), "begin": model.bos_id(), "end": model.eos_id()}
    return TokenizerModel(data, SUFFIXES["sentencepiece"], pieces, _special(special, len(pieces), options, where))


READERS = {"wordpiece": _read_wordpiece, "sentencepiece": _read_sentencepiece}


def _special(special: Mapping[str, int], size: int, options: TextOptions, where: str) -> SpecialIds:
    """Returns the special ids of a model where -1 means absent; without padding, the id after the last one pads."""
    asked = {name: special[name] for name in ("unknown", "begin", "end") if name == "unknown" or getattr(options, name)}
    for name, id_ in asked.items():
        if id_ < 0:
            message = f"{where} has no piece for {name} ({SPECIAL_PIECES[name]} in WordPieces)"
            raise UserError(message + ("" if name == "unknown" else f": leave out `{name}: true`, or add the piece"))
    return SpecialIds(
        padding=special["padding"] if special["padding"] >= 0 else size,
        unknown=asked["unknown"],
        begin=asked.get("begin"),
        end=asked.get("end"),
        first=0 if options.model else 1 + len(asked),
    )
