"""The names of a version's files.

Shards are named as TensorFlow Datasets names them; an index' name differs, so that `emoji-train.tfrecord-*` matches
shards alone.

>>> shard_name("emoji", "train", 0, 12)
'emoji-train.tfrecord-00000-of-00012'
>>> span_file("2026-11-20", REPORT)
'spans/2026-11-20/report.json'
"""

SPANS = "spans"
"""The folder of each span's own files."""
REPORT, REJECTED = "report.json", "rejected.jsonl"
"""The files of a span, in its folder: its report, and its rejected rows if there are any."""


def shard_name(dataset: str, split: str, shard: int, shards: int) -> str:
    """The file name of a shard, counted from 0."""
    return f"{dataset}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"


def vocabulary_name(feature: str) -> str:
    """The file name of a feature's vocabulary, in `transform_fn/assets`."""
    return f"{feature}.vocabulary.txt"


def span_file(span: str, name: str) -> str:
    """The path of a span's file in its version."""
    return f"{SPANS}/{span}/{name}"


def span_of_file(path: str) -> str | None:
    """Gives the span of a file of its version; None for a file of no span."""
    folder, _, rest = path.partition("/")
    return rest.partition("/")[0] if folder == SPANS else None


def index_name(dataset: str, split: str, shard: int, shards: int) -> str:
    """The file name of a shard's index of record offsets."""
    return f"{dataset}-{split}.index-{shard:05d}-of-{shards:05d}"
