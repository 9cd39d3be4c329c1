"""The names of a version's files.

Shards are named as TensorFlow Datasets names them; an index' name differs, so that `emoji-train.tfrecord-*` matches
shards alone.

>>> shard_name("emoji", "train", 0, 12)
'emoji-train.tfrecord-00000-of-00012'
"""


def shard_name(dataset: str, split: str, shard: int, shards: int) -> str:
    """The file name of a shard, counted from 0."""
    return f"{dataset}-{split}.tfrecord-{shard:05d}-of-{shards:05d}"


def vocabulary_name(feature: str) -> str:
    """The file name of a feature's vocabulary, in `transform_fn/assets`."""
    return f"{feature}.vocabulary.txt"


def index_name(dataset: str, split: str, shard: int, shards: int) -> str:
    """The file name of a shard's index of record offsets."""
    return f"{dataset}-{split}.index-{shard:05d}-of-{shards:05d}"
