"""`dataset_info.json`, by which TensorFlow Datasets finds the splits and the shards of a version."""

import json

from recordmill.pipeline.dataset.manifest import Manifest

DATASET_INFO = "dataset_info.json"
SHARD_NAMES = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def dataset_info(manifest: Manifest) -> bytes:
    """Gives the file as `tensorflow_datasets` 4.9 reads it, without the splits that hold no record: it refuses one."""
    splits = [
        {
            "name": name,
            "shardLengths": [str(shard.records) for shard in split.shards],
            "numBytes": str(split.bytes),
            "filepathTemplate": SHARD_NAMES,
        }
        for name, split in manifest.splits.items()
        if split.records
    ]
    info = {"name": manifest.name, "version": "1.0.0", "splits": splits, "fileFormat": "tfrecord"}
    return (json.dumps(info, indent=2) + "\n").encode()
