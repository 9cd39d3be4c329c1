"""SavedModels as bytes: their operations, read without TensorFlow and judged before it loads them.

A SavedModel is a program. No allowed operation reads or writes a file, runs Python or talks to another process, except
two kinds that every SavedModel needs: tables filled from a file of words (`InitializeTableFromTextFileV2`), and saving
and restoring variables (`SAVING`), only in the functions for it. The names are those of TensorFlow 2.21, without
deprecated and quantized operations and gradients.

Field numbers come from TensorFlow's `saved_model.proto`, `meta_graph.proto`, `graph.proto`, `function.proto`,
`node_def.proto` and `attr_value.proto`. All occurrences of a field count, though protobuf takes the last.
"""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from recordmill.pipeline.dataset.paths import check_inner
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.reader.wire import LONGEST, Malformed

_META_GRAPH = (2,)
_NODES, _FUNCTIONS = (2, 1), (2, 2, 1)  # of a meta graph
_FUNCTION_NAME, _FUNCTION_NODES = (1, 1), (3,)
_ASSETS = (6, 2)
_COLLECTED = (4, 2, 1, 1)
_OUTPUTS = (5, 2, 2, 2, 1)  # each signature's output tensors
_NAME, _OP, _INPUT, _ATTRIBUTE = 1, 2, 3, 5  # of a node
_CALLED = ((2, 10, 1), (2, 1, 9, 1))  # functions in an attribute, alone or in a list


class Node(NamedTuple):
    """An operation of a graph or of a function."""

    name: str
    op: str
    inputs: tuple[str, ...]  # the nodes that feed it, or that it waits for
    calls: tuple[str, ...]  # the functions in its attributes
    function: str | None  # the function that contains it; None in the graph itself


def _node(node: memoryview, function: str | None) -> Node:
    """Reads a node; joins repeated names or operations, to overlook none."""
    parts: dict[int, list[memoryview]] = {_NAME: [], _OP: [], _INPUT: [], _ATTRIBUTE: []}
    for tag, content in _fields(node):
        parts.setdefault(tag >> 3, []).append(content)
    name, op = (" ".join(map(_text, parts[part])) for part in (_NAME, _OP))
    inputs = tuple(_plain(_text(content)) for content in parts[_INPUT])
    calls = tuple(name for content in parts[_ATTRIBUTE] for path in _CALLED for name in _texts(content, path))
    return Node(name, op, inputs, calls, function)


def _plain(tensor: str) -> str:
    """Returns the node's name in `name:0`, `^name` or `name:output:0`."""
    return tensor.removeprefix("^").partition(":")[0]


def _texts(message: memoryview, path: tuple[int, ...]) -> list[str]:
    return [_text(content) for content in _at(message, path)]


def _text(content: memoryview) -> str:
    return bytes(content).decode("utf-8", "backslashreplace")


def _at(message: memoryview, path: tuple[int, ...]) -> Iterator[memoryview]:
    """Yields the contents at a path of length-delimited fields below a message."""
    if not path:
        yield message
        return
    for tag, content in _fields(message):
        if tag == path[0] << 3 | 2:
            yield from _at(content, path[1:])


def _fields(data: memoryview) -> list[tuple[int, memoryview]]:
    """Lists a message's fields in order: (tag, content). Raises: Malformed."""
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
            case other:  # groups, 3 and 4, are obsolete
                raise Malformed(f"a field of type {other}")
        if tag < 8 or offset > end:
            raise Malformed(f"field {tag >> 3} ends {offset - end:,} bytes after its message")
        result.append((tag, data[start:offset]))
    return result


def _varint(data: memoryview, offset: int) -> tuple[int, int]:
    """Reads a number: (value, offset after it)."""
    value = 0
    for shift, byte in enumerate(data[offset : offset + LONGEST]):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value & (1 << 64) - 1, offset + shift + 1
    raise Malformed("it ends inside a number")


MODEL_FILE = "saved_model.pb"
SAVERS = "__inference__traced_"  # TensorFlow's prefix of functions that save and restore variables

# Of arrays, numbers, lists, strings, TensorFlow Text, images, flow, tables and variables, in this order.
ALLOWED = frozenset(
    """
    Bitcast BroadcastArgs BroadcastTo Concat ConcatOffset ConcatV2 Const DepthToSpace Diag DiagPart EditDistance
    EnsureShape ExpandDims ExtractImagePatches Fill Gather GatherNd GatherV2 Identity IdentityN InvertPermutation
    ListDiff LowerBound MirrorPad OneHot OnesLike Pack Pad PadV2 Placeholder PlaceholderWithDefault Rank Reshape
    Reverse ReverseSequence ReverseV2 ScatterNd Shape ShapeN Size Slice SpaceToDepth Split SplitV Squeeze StopGradient
    StridedSlice TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
    TensorStridedSliceUpdate Tile Transpose Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex
    UpperBound Where ZerosLike DynamicPartition DynamicStitch ParallelDynamicStitch PreventGradient Snapshot

    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 All Angle Any ApproximateEqual ArgMax ArgMin Asin Asinh Atan Atan2
    Atanh BatchMatMulV2 BatchMatMulV3 Betainc BiasAdd Bincount BitwiseAnd BitwiseOr BitwiseXor Bucketize Cast Ceil
    ClipByValue Complex ComplexAbs Conj Cos Cosh Cross Cumprod Cumsum CumulativeLogsumexp DenseBincount Digamma Div
    DivNoNan Einsum Elu Equal Erf Erfc Erfinv EuclideanNorm Exp Expm1 FFT FFT2D FFT3D Floor FloorDiv FloorMod Greater
    GreaterEqual HistogramFixedWidth IFFT IFFT2D IFFT3D IRFFT IRFFT2D IRFFT3D Igamma Igammac Imag Inv Invert IsFinite
    IsInf IsNan L2Loss LeakyRelu LeftShift Less LessEqual Lgamma LinSpace Log Log1p LogSoftmax LogicalAnd LogicalNot
    LogicalOr MatMul MatrixBandPart MatrixDiagPartV3 MatrixDiagV3 Max Maximum Mean Min Minimum Mod Mul MulNoNan Ndtri
    Neg NextAfter NotEqual NthElement Polygamma PopulationCount Pow Prod RFFT RFFT2D RFFT3D Range Real RealDiv
    Reciprocal Relu Relu6 RightShift Rint Round Rsqrt SegmentMax SegmentMaxV2 SegmentMean SegmentMin SegmentMinV2
    SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 Select SelectV2 Selu Sigmoid Sign Sin Sinh Softmax Softplus
    Softsign Sqrt Square SquaredDifference Sub Sum Tan Tanh TopKV2 TruncateDiv TruncateMod UnsortedSegmentMax
    UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum Xdivy Xlog1py Xlogy Zeta StatelessMultinomial
    StatelessRandomGetAlg StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomNormal
    StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
    StatelessRandomUniformInt StatelessRandomUniformIntV2 StatelessRandomUniformV2 StatelessTruncatedNormal
    StatelessTruncatedNormalV2

    DenseToDenseSetOperation DenseToSparseSetOperation EmptyTensorList RaggedBincount RaggedCross RaggedFillEmptyRows
    RaggedGather RaggedRange RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
    SetSize SparseAdd SparseBincount SparseConcat SparseCross SparseCrossHashed SparseCrossV2 SparseFillEmptyRows
    SparseReduceMax SparseReduceSum SparseReorder SparseReshape SparseSegmentMean SparseSegmentSum SparseSlice
    SparseSparseMaximum SparseSparseMinimum SparseSplit SparseTensorDenseAdd SparseTensorDenseMatMul SparseToDense
    SparseToSparseSetOperation TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather
    TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListResize
    TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack

    AsString DecodeBase64 DecodeRaw DecodePaddedRaw EncodeBase64 Fingerprint ParseTensor ReduceJoin RegexFullMatch
    RegexReplace SerializeTensor StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength
    StringLower StringNGrams StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode
    UnicodeScript UnicodeTranscode UnsortedSegmentJoin

    CaseFoldUTF8 FastBertNormalize FastWordpieceTokenizeWithOffsets NormalizeUTF8 NormalizeUTF8WithOffsetsMap
    RegexSplitWithOffsets SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceOp
    SentencepieceStringToIdOp SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp
    UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets

    AdjustContrastv2 AdjustHue AdjustSaturation CombinedNonMaxSuppression CropAndResize DecodeAndCropJpeg DecodeBmp
    DecodeGif DecodeImage DecodeJpeg DecodePng DecodeWebP DrawBoundingBoxesV2 EncodeJpeg EncodeJpegVariableQuality
    EncodePng ExtractGlimpseV2 ExtractJpegShape HSVToRGB ImageProjectiveTransformV3 NonMaxSuppressionV3
    NonMaxSuppressionV4 NonMaxSuppressionV5 RGBToHSV ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor
    ScaleAndTranslate

    Assert Case ControlTrigger Enter Exit If LoopCond Merge NextIteration NoOp PartitionedCall StatefulPartitionedCall
    StatelessCase StatelessIf StatelessWhile Switch ToBool While

    AssignVariableOp HashTableV2 InitializeTableFromTextFileV2 InitializeTableV2 LookupTableFindV2 LookupTableSizeV2
    ReadVariableOp VarHandleOp VarIsInitializedOp
""".split()
)
"""Operations allowed anywhere in a graph."""
SAVING = frozenset(["MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"])
"""Operations allowed only in functions that save and restore variables."""


class UnsafeGraphError(DatasetError):
    """A graph is not the published one, or could do more than compute."""


class Checked(NamedTuple):
    """The problems of a SavedModel."""

    problems: tuple[str, ...]
    operations: int = 0  # their number


def check_model(data: bytes) -> Checked:
    """Checks a SavedModel's operations, and that its tables' files are its own."""
    nodes, assets = list[Node](), list[str]()  # the files that fill tables
    fetched = set[str]()  # the nodes in signatures and collections, run by loading or serving
    try:
        for graph in _at(memoryview(data), _META_GRAPH):
            nodes += [_node(node, None) for node in _at(graph, _NODES)]
            for function in _at(graph, _FUNCTIONS):
                (name, *_) = (*_texts(function, _FUNCTION_NAME), "")
                nodes += [_node(node, name) for node in _at(function, _FUNCTION_NODES)]
            assets += _texts(graph, _ASSETS)
            fetched.update(_plain(name) for path in (_OUTPUTS, _COLLECTED) for name in _texts(graph, path))
    except Malformed:
        return Checked(("the file is not a SavedModel",))
    taken = {name for node in nodes if node.function is None for name in node.inputs} | fetched
    saving = {node.function for node in nodes if node.op in SAVING}
    savers = {function for function in saving if _only_saves(function, data, nodes, taken)}
    refused = [node for node in nodes if node.op not in ALLOWED]
    foreign = Counter(node.op for node in refused if node.op not in SAVING or node.function not in savers)
    wrong = "is not allowed in a published graph"
    problems = [f"the operation {op!r}, {n} times, {wrong}" for op, n in sorted(foreign.items())]
    for asset in assets:
        try:
            check_inner(asset)
        except DatasetError as error:
            problems.append(f"a table's file: {error}")
    return Checked(tuple(problems), len(nodes))


def _only_saves(function: str | None, data: bytes, nodes: Sequence[Node], taken: Set[str]) -> bool:
    """Whether a function only saves or restores: named in its definition and in one unused node of the main graph."""
    if function is None or not function.startswith(SAVERS) or data.count(function.encode()) != 2:
        return False
    callers = [node for node in nodes if function in node.calls]
    return len(callers) == 1 and callers[0].function is None and callers[0].name not in taken
