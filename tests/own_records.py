"""Reads a published version without any of Recordmill's code: a fault that its writer and its reader share shows here.

The formats are JSON, TFRecord (a length, its CRC, the data, their CRC; each a masked CRC-32C), and protocol buffers on
the wire: `Example {Features features = 1}`, `Features {map<string, Feature> feature = 1}`, `Feature {BytesList = 1,
FloatList = 2, Int64List = 3}`, each list a repeated field 1.
"""

import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import google_crc32c

Read = Callable[[str], bytes]
Record = dict[str, list[Any]]


def reader_of(output: str) -> Read:
    """Makes the function that reads a file of an output by its name."""
    if "://" not in output:
        return lambda name: Path(output, name).read_bytes()
    bucket, _, prefix = output.removeprefix("s3://").partition("/")
    client = boto3.client("s3")
    return lambda name: bytes(client.get_object(Bucket=bucket, Key=f"{prefix}/{name}")["Body"].read())


@dataclass(frozen=True)
class Version:
    """A version as its files say."""

    name: str
    manifest: dict[str, Any]
    records: dict[str, list[Record]]
    """By split, in their order."""


def live_name(read: Read) -> str:
    return str(json.loads(read("LATEST"))["version"])


def read_manifest(read: Read, name: str) -> dict[str, Any]:
    manifest = json.loads(read(f"versions/{name}/dataset.json"))
    assert manifest["version"] == name
    return dict(manifest)


def read_version(read: Read, name: str) -> Version:
    """Reads all records of a version, and compares each shard with its digest, its counts and its index."""
    manifest, records = read_manifest(read, name), dict[str, list[Record]]()
    for split, entry in manifest["splits"].items():
        records[split] = [each for shard in entry["shards"] for each in _records(read, name, shard)]
        assert len(records[split]) == entry["records"]
    return Version(name, manifest, records)


def _records(read: Read, version: str, shard: dict[str, Any]) -> list[Record]:
    folder = f"versions/{shard.get('version') or version}"
    data, index = (read(f"{folder}/{shard[file]}") for file in ("file", "index"))
    assert (len(data), hashlib.sha256(data).hexdigest()) == (shard["bytes"], shard["sha256"]), shard["file"]
    offsets, examples = zip(*frames(data), strict=True) if data else ((), ())
    assert struct.pack(f"<{len(offsets) + 1}Q", *offsets, len(data)) == index, shard["index"]
    assert len(examples) == shard["records"], shard["file"]
    return [parse_example(example) for example in examples]


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the offset and the data of each record of a TFRecord file."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + length]
        stated = struct.unpack_from("<I", data, at + 8) + struct.unpack_from("<I", data, at + 12 + length)
        assert stated == (_masked(data[at : at + 8]), _masked(body)), f"the CRC of the record at byte {at}"
        yield at, body
        at += 16 + length
    assert at == len(data)


def _masked(data: bytes) -> int:
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def parse_example(data: bytes) -> Record:
    """Parses a serialized `tf.train.Example`: the values of each feature by its name."""
    record = Record()
    for number, features in _fields(data):
        assert number == 1
        for _, entry in _fields(features):
            feature = dict(_fields(entry))
            name = feature[1].decode()
            assert name not in record, f"the feature {name} twice"
            record[name] = _values(feature.get(2, b""))
    return record


def _values(feature: bytes) -> list[Any]:
    values: list[Any] = []
    for kind, numbers in _fields(feature):
        for _, value in _fields(numbers):
            if kind == 1:
                values.append(value)
            elif kind == 2:
                values += [number for (number,) in struct.iter_unpack("<f", value)]
            else:
                values += _integers(value)
    return values


def _integers(packed: bytes | int) -> Iterator[int]:
    at = 0
    while isinstance(packed, bytes) and at < len(packed):
        value, at = _varint(packed, at)
        yield value - (1 << 64) if value >> 63 else value
    if isinstance(packed, int):
        yield packed - (1 << 64) if packed >> 63 else packed


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each field: bytes, or an integer of a varint."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if tag & 7 == 2:
            length, at = _varint(message, at)
        else:
            length = {1: 8, 5: 4}[tag & 7]
        assert at + length <= len(message), "a field that is cut off"
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
