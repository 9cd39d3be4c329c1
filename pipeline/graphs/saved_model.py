"""Reads the operations of a SavedModel from its bytes, without TensorFlow, so that it is judged before it is loaded.

Field numbers are those of TensorFlow's `saved_model.proto`, `meta_graph.proto`, `graph.proto`, `function.proto`,
`node_def.proto` and `attr_value.proto`. All occurrences of a repeated field count, though protocol buffers would take
the last.

>>> {node.op for node in read_saved_model(data).nodes}  # doctest: +SKIP
{'Placeholder', 'Const', …}
"""

from collections.abc import Iterator
from typing import NamedTuple

from recordmill.pipeline.reader.parsing.varints import LONGEST, Malformed

_META_GRAPH = (2,)
_NODES, _FUNCTIONS = (2, 1), (2, 2, 1)  # of a meta graph
_FUNCTION_NAME, _FUNCTION_NODES = (1, 1), (3,)
_ASSETS = (6, 2)
_COLLECTED = (4, 2, 1, 1)
_OUTPUTS = (5, 2, 2, 2, 1)  # the tensor of each output of each signature
_NAME, _OP, _INPUT, _ATTRIBUTE = 1, 2, 3, 5  # of a node
_CALLED = ((2, 10, 1), (2, 1, 9, 1))  # functions that an attribute names, alone or in a list


class Node(NamedTuple):
    """An operation of a graph or of a function."""

    name: str
    op: str
    inputs: tuple[str, ...]
    """The names of the nodes whose outputs it takes, or that it waits for."""
    calls: tuple[str, ...]
    """The functions named in its attributes."""
    function: str | None
    """The function that contains it; None in the graph itself."""


class SavedModel(NamedTuple):
    """All graphs of a model together."""

    nodes: tuple[Node, ...]
    assets: tuple[str, ...]
    """The names of the files that fill tables."""
    fetched: frozenset[str]
    """The nodes named in signatures and collections, which loading or serving runs."""


def read_saved_model(data: bytes) -> SavedModel:
    """Reads `saved_model.pb`.

    Raises:
        Malformed: it is not a protocol buffer.
    """
    nodes, assets, fetched = list[Node](), list[str](), set[str]()
    for graph in _at(memoryview(data), _META_GRAPH):
        nodes += [_node(node, None) for node in _at(graph, _NODES)]
        for function in _at(graph, _FUNCTIONS):
            (name, *_) = (*_texts(function, _FUNCTION_NAME), "")
            nodes += [_node(node, name) for node in _at(function, _FUNCTION_NODES)]
        assets += _texts(graph, _ASSETS)
        fetched.update(_plain(name) for path in (_OUTPUTS, _COLLECTED) for name in _texts(graph, path))
    return SavedModel(tuple(nodes), tuple(assets), frozenset(fetched))


def _node(node: memoryview, function: str | None) -> Node:
    """Reads a node; several names or operations are joined, so that none is overlooked."""
    parts: dict[int, list[memoryview]] = {_NAME: [], _OP: [], _INPUT: [], _ATTRIBUTE: []}
    for tag, content in _fields(node):
        parts.setdefault(tag >> 3, []).append(content)
    name, op = (" ".join(map(_text, parts[part])) for part in (_NAME, _OP))
    inputs = tuple(_plain(_text(content)) for content in parts[_INPUT])
    calls = tuple(name for content in parts[_ATTRIBUTE] for path in _CALLED for name in _texts(content, path))
    return Node(name, op, inputs, calls, function)


def _plain(tensor: str) -> str:
    """The node's name in `name:0`, `^name` or `name:output:0`."""
    return tensor.removeprefix("^").partition(":")[0]


def _texts(message: memoryview, path: tuple[int, ...]) -> list[str]:
    return [_text(content) for content in _at(message, path)]


def _text(content: memoryview) -> str:
    return bytes(content).decode("utf-8", "backslashreplace")


def _at(message: memoryview, path: tuple[int, ...]) -> Iterator[memoryview]:
    """Yields what lies below a message by a path of field numbers, all of fields that have a length."""
    if not path:
        yield message
        return
    for tag, content in _fields(message):
        if tag == path[0] << 3 | 2:
            yield from _at(content, path[1:])


def _fields(data: memoryview) -> list[tuple[int, memoryview]]:
    """Lists a message's fields in their order, each with its tag and content. Raises: Malformed."""
    result, offset, end = [], 0, len(data)
    while offset < end:
        tag, start = _varint(data, offset)
        match tag & 7:
            case 0:
                offset = _varint(data, start)[1]
            case 1:
                offset = start + 8
            case 2:
                size, start = _varint(data, start)
                offset = start + size
            case 5:
                offset = start + 4
            case other:  # groups, 3 and 4, are long out of use
                raise Malformed(f"a field of type {other}")
        if tag < 8 or offset > end:
            raise Malformed(f"field {tag >> 3} ends {offset - end:,} bytes after its message")
        result.append((tag, data[start:offset]))
    return result


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    """Reads a number; also gives the offset after it."""
    value = 0
    for shift, byte in enumerate(data[offset : offset + LONGEST]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value & (1 << 64) - 1, offset + shift + 1
    raise Malformed("it ends inside a number")
