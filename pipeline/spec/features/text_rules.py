"""The rules by which a text's options go together; each names the option that is wrong and what to do."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.spec.features.base import Feature, feature_named
from recordmill.transforms.contract.kinds.text import MODEL_TOKENIZERS, WORD_TOKENIZERS, TextOptions

SHARED_ALIKE = (
    "tokenizer", "model_type", "normalize", "case", "ngrams", "oov_buckets", "begin", "end",
)  # fmt: skip
"""The options that must be equal in features that share a vocabulary, so that an id means the same in both."""


def check_options(text: TextOptions, changed: AbstractSet[str], given: AbstractSet[str]) -> None:
    """Checks the options of a text against each other.

    Args:
        text: the options.
        changed: the names of those that have another value than the default.
        given: the names of those that the spec gives.

    Raises:
        WrongValueError: two of them do not go together.
    """
    for option, message in _wrong(text, changed, given):
        raise WrongValueError(message, option)


def _wrong(text: TextOptions, changed: AbstractSet[str], given: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    if text.normalize == "nfc" and text.case == "fold":
        yield "normalize", "`case: fold` is NFKC case folding: leave `normalize` out, or take `case: lower`"
    yield from _wrong_tokens(text, changed)
    yield from _wrong_model(text, changed, given)
    added = text.begin + text.end
    if text.max_length is not None and text.max_length <= added:
        yield "max_length", f"should be {added + 1} or more, since begin and end take {added}, got {text.max_length}"
    if "truncate" in changed and text.max_length is None:
        yield "truncate", "nothing is cut without `max_length`: give one, or leave `truncate` out"
    if text.pack is not None and text.keep_length:
        yield "keep_length", "with `pack` the length of each document is stored: leave `keep_length` out"
    if list(text.ngrams) != sorted(set(text.ngrams)):
        yield "ngrams", f"should be widths that ascend, such as [1, 2], got {list(text.ngrams)}"


def _wrong_tokens(text: TextOptions, changed: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yields the options that contradict the tokenizer, or hashing."""
    for option in ("ngrams", "oov_buckets", "hash_buckets"):
        if option in changed and text.tokenizer not in WORD_TOKENIZERS:
            tokenizers = ", ".join(WORD_TOKENIZERS)
            yield option, f"goes with the tokenizers {tokenizers} alone, not with {text.tokenizer}: leave it out"
    for option in ("vocabulary", "minimum_count", "oov_buckets"):
        if option in changed and text.tokenizer == "bytes":
            yield option, "the tokenizer bytes has no vocabulary, each byte is its own id: leave it out"
        if option in changed and text.hash_buckets is not None:
            yield option, "there is no vocabulary with `hash_buckets`: leave one of the two out"
    if "minimum_count" in changed and not isinstance(text.vocabulary, int):
        where = "is given" if isinstance(text.vocabulary, str) else "has its options in the other feature"
        yield "minimum_count", f"nothing is counted here, since the vocabulary {where}: leave it out"


def _wrong_model(text: TextOptions, changed: AbstractSet[str], given: AbstractSet[str]) -> Iterator[tuple[str, str]]:
    """Yields the options that contradict a learned model, or a given one."""
    if isinstance(text.vocabulary, str) and text.tokenizer in MODEL_TOKENIZERS:
        yield "vocabulary", f"a {text.tokenizer} model that is given is `model: {text.vocabulary}`"
    if "model_type" in changed and (text.tokenizer != "sentencepiece" or text.model is not None):
        yield "model_type", "says how a sentencepiece model is learned, and none is learned here: leave it out"
    if text.model is None:
        return
    if text.tokenizer not in MODEL_TOKENIZERS:
        yield "model", f"goes with the tokenizers {', '.join(MODEL_TOKENIZERS)} alone, not with {text.tokenizer}"
    for option in ("vocabulary", "minimum_count"):
        if option in changed:
            yield option, "a given `model` has its own pieces: leave it out"
    if "case" not in given:
        yield "model", "was made of text of one case: say which, `case: keep` or `case: lower`"


def check_packed(features: Mapping[str, Feature], label: str | None, preprocessing: str | None) -> None:
    """Checks that a record holds nothing but a packed text: a row of several documents has no one label.

    Raises:
        WrongValueError: it holds more; its path begins at the spec.
    """
    for name in [name for name, feature in features.items() if getattr(feature, "pack", None) is not None]:
        others = [f"the feature '{other}'" for other in features if other != name]
        beside = [*others, *(["`label`"] if label else []), *(["`preprocessing`"] if preprocessing else [])]
        if beside:
            message = f"packed rows hold several documents, and nothing can stand beside them: leave {beside[0]} out"
            raise WrongValueError(f"{message}, or `pack`", "features", name, "pack")


def check_shared(text: TextOptions, owner: str, features: Mapping[str, Feature]) -> None:
    """Checks that a shared vocabulary belongs to another text, whose options match.

    Raises:
        WrongValueError: it is not; its path begins at the text.
    """
    path = ("vocabulary", "shared_with")
    other = feature_named(owner, features, *path).options()
    if not isinstance(other, TextOptions) or other.shared_with is not None:
        raise WrongValueError(f"'{owner}' should be a text with a vocabulary of its own", *path)
    for option in SHARED_ALIKE:
        mine, theirs = getattr(text, option), getattr(other, option)
        if mine != theirs:
            raise WrongValueError(
                f"is {mine} here and {theirs} in '{owner}', whose vocabulary this is: make them the same", option
            )
    if other.hash_buckets is not None or other.tokenizer == "bytes":
        raise WrongValueError(f"'{owner}' has no vocabulary: leave this out and take the same options", *path)
