"""A version for catalogues: `croissant.json` of MLCommons Croissant 1.1, `dataset_info.json` of TensorFlow Datasets.

Croissant lists every shard with its digest, the splits, the names of ids, and the stored fields of a record. It lacks a
TFRecord format: a Croissant reader reads the splits and the names; records need Recordmill, TensorFlow Datasets or
`tf.data`, or `recordmill export` to Parquet.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from recordmill.pipeline.dataset.manifest import Json, Manifest, Shard
from recordmill.transforms.base.kinds import read_descriptions
from recordmill.transforms.base.stored import KEY, Stored, part_name

CROISSANT = "croissant.json"
TERMS = """arrayShape citeAs column containedIn equivalentProperty extract field fileObject fileProperty fileSet format
    includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace
    samplingRate separator source subField transform""".split()
CONTEXT: Json = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{term: f"cr:{term}" for term in TERMS},
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}
"""The `@context` required by Croissant 1.1."""
TFRECORD = "https://www.tensorflow.org/tutorials/load_data/tfrecord"  # the shards' format, in place of a MIME type
SHARDS = "shards"
_TYPES = {"bytes": "sc:Text", "int64": "sc:Integer", "float32": "sc:Float"}
DATASET_INFO = "dataset_info.json"
SHARD_NAMES = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"


def croissant(manifest: Manifest) -> bytes:
    """Returns `croissant.json`, without entries missing in the spec's `about`; a missing licence is `unknown`."""
    about: Json = manifest.spec.get("about") or {}
    creators = [{"@type": "Organization", "name": name} for name in about.get("creators") or ()]
    own = [f"{manifest.name}-*.tfrecord-*"] if any(shard.version is None for shard in manifest.shards) else []
    others = [_path(shard) for shard in manifest.shards if shard.version is not None]
    shards = _node("FileSet", SHARDS, encodingFormat=TFRECORD, includes=own + others)
    rows = [{"splits/name": name, "splits/records": split.records} for name, split in manifest.splits.items()]
    fields = [_field("splits/name", "sc:Text"), _field("splits/records", "sc:Integer")]
    key = {"@id": "splits/name"}
    splits = _node("RecordSet", "splits", dataType="cr:Split", key=key, field=fields, data=rows)
    described = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": manifest.name,
        "alternateName": about.get("title"),
        "description": about.get("description") or f"The dataset {manifest.name}.",
        "license": about.get("license") or "unknown",
        "citeAs": about.get("citation"),
        "url": about.get("homepage"),
        "creator": creators,
        "inLanguage": about.get("languages"),
        "keywords": about.get("tags"),
        "version": "1.0.0",
        "distribution": [*_files(manifest), shards],
        "recordSet": [splits, *_names(manifest), _records(manifest)],
    }
    return (json.dumps({name: value for name, value in described.items() if value}, indent=1) + "\n").encode()


def labels_file(feature: str) -> str:
    """Returns the name of the file with a category's names by id."""
    return f"{feature}.labels.txt"


def _path(shard: Shard) -> str:
    return shard.file if shard.version is None else f"../{shard.version}/{shard.file}"


def _files(manifest: Manifest) -> Iterator[Json]:
    named = [labels_file(feature) for feature in manifest.features if labels_file(feature) in manifest.files]
    files = [(_path(shard), vars(shard), TFRECORD) for shard in manifest.shards]
    for path, entry, encoding in [*files, *((name, manifest.files[name], "text/plain") for name in named)]:
        content = {"contentUrl": path, "contentSize": f"{entry['bytes']} B", "encodingFormat": encoding}
        yield _node("FileObject", path, **content, sha256=entry["sha256"])


def _node(type_: str, id_: str, **more: Any) -> Json:
    return {"@type": f"cr:{type_}", "@id": id_, "name": id_, **more}


def _names(manifest: Manifest) -> Iterator[Json]:
    """Yields a record set of ids and names for each category with a file of names."""
    for feature in manifest.features:
        if labels_file(feature) not in manifest.files:
            continue
        name = f"{feature}_names"
        lines = {prop: _source(feature, "fileObject", fileProperty=prop) for prop in ("lineNumbers", "lines")}
        ids = _field(f"{name}/id", "sc:Integer", source=lines["lineNumbers"])
        yield _node(
            "RecordSet",
            name,
            description=f"The names that the ids of {feature} stand for.",
            dataType="sc:Enumeration",
            key={"@id": f"{name}/id"},
            field=[ids, _field(f"{name}/name", "sc:Text", source=lines["lines"])],
        )


def _records(manifest: Manifest) -> Json:
    regex = f"^{re.escape(manifest.name)}-(.+)\\.tfrecord-.*$"
    of_split = {**_source("", "fileSet", fileProperty="filename"), "transform": {"regex": regex}}
    fields = [_field("records/split", "sc:Text", source=of_split, references={"field": {"@id": "splits/name"}})]
    fields.append(_stored(KEY, "The key that names the row for ever.", Stored("bytes")))
    for feature, description in read_descriptions(manifest.features).items():
        text = f"{'The label: a' if feature == manifest.label else 'A'} feature of kind {description.kind}"
        for part, stored in description.parts.items():
            words = f"{text}, its {part}." if part else f"{text}."
            fields.append(_stored(part_name(feature, part), words, stored, description.is_image_file))
    text = "A record for each row: a `tf.train.Example` with these features, as they are stored."
    return _node("RecordSet", "records", description=text, key={"@id": f"records/{KEY}"}, field=fields)


def _stored(name: str, text: str, stored: Stored, is_image: bool = False) -> Json:
    is_image &= stored.dtype == "bytes"
    type_, source = "sc:ImageObject" if is_image else _TYPES[stored.dtype], _source("", "fileSet", column=name)
    field = _field(f"records/{name}", type_, description=text, source=source)
    return {**field, "repeated": True} if stored.shape != () else field


def _field(id_: str, type_: str, **more: Any) -> Json:
    return {"@type": "cr:Field", "@id": id_, "name": id_.partition("/")[2], "dataType": type_, **more}


def _source(feature: str, kind: str, **extract: str) -> Json:
    return {kind: {"@id": labels_file(feature) if feature else SHARDS}, "extract": extract}


def dataset_info(manifest: Manifest) -> bytes:
    """Returns the file for `tensorflow_datasets` 4.9, without empty splits, which it refuses."""
    splits = list[Json]()
    for name, split in ((name, split) for name, split in manifest.splits.items() if split.records):
        figures = {"shardLengths": [str(shard.records) for shard in split.shards], "numBytes": str(split.bytes)}
        splits.append({"name": name, **figures, "filepathTemplate": SHARD_NAMES})
    info = {"name": manifest.name, "version": "1.0.0", "splits": splits, "fileFormat": "tfrecord"}
    return (json.dumps(info, indent=2) + "\n").encode()
