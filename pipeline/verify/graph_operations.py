"""The TensorFlow operations that a published graph may hold: those of our graphs, and those that only compute.

None of them reads or writes a file, runs Python or talks to another process, but for what every SavedModel needs: a
table is filled from a file of words (`InitializeTableFromTextFileV2`), and its variables are saved and restored
(`SAVING`, which `verify.graph_safety` allows in the functions for that alone). A list of what is allowed, not of
what is forbidden: TensorFlow has some 1,500 operations, and each version adds more.

Names are those of TensorFlow 2.21, without what is deprecated, quantized or for gradients.
"""

_ARRAYS = """
    Bitcast BroadcastArgs BroadcastTo Concat ConcatOffset ConcatV2 Const DepthToSpace Diag DiagPart EditDistance
    EnsureShape ExpandDims ExtractImagePatches Fill Gather GatherNd GatherV2 Identity IdentityN InvertPermutation
    ListDiff LowerBound MirrorPad OneHot OnesLike Pack Pad PadV2 Placeholder PlaceholderWithDefault Rank Reshape
    Reverse ReverseSequence ReverseV2 ScatterNd Shape ShapeN Size Slice SpaceToDepth Split SplitV Squeeze StopGradient
    StridedSlice TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub TensorScatterUpdate
    TensorStridedSliceUpdate Tile Transpose Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack UnravelIndex
    UpperBound Where ZerosLike DynamicPartition DynamicStitch ParallelDynamicStitch PreventGradient Snapshot
"""
_NUMBERS = """
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
"""
_LISTS = """
    DenseToDenseSetOperation DenseToSparseSetOperation EmptyTensorList RaggedBincount RaggedCross RaggedFillEmptyRows
    RaggedGather RaggedRange RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
    SetSize SparseAdd SparseBincount SparseConcat SparseCross SparseCrossHashed SparseCrossV2 SparseFillEmptyRows
    SparseReduceMax SparseReduceSum SparseReorder SparseReshape SparseSegmentMean SparseSegmentSum SparseSlice
    SparseSparseMaximum SparseSparseMinimum SparseSplit SparseTensorDenseAdd SparseTensorDenseMatMul SparseToDense
    SparseToSparseSetOperation TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather
    TensorListGetItem TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListResize
    TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack
"""
_STRINGS = """
    AsString DecodeBase64 DecodeRaw DecodePaddedRaw EncodeBase64 Fingerprint ParseTensor ReduceJoin RegexFullMatch
    RegexReplace SerializeTensor StaticRegexFullMatch StaticRegexReplace StringFormat StringJoin StringLength
    StringLower StringNGrams StringSplit StringSplitV2 StringStrip StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringToNumber StringUpper Substr UnicodeDecode UnicodeDecodeWithOffsets UnicodeEncode
    UnicodeScript UnicodeTranscode UnsortedSegmentJoin
"""
_TENSORFLOW_TEXT = """
    CaseFoldUTF8 FastBertNormalize FastWordpieceTokenizeWithOffsets NormalizeUTF8 NormalizeUTF8WithOffsetsMap
    RegexSplitWithOffsets SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceOp
    SentencepieceStringToIdOp SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp
    UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets WordpieceTokenizeWithOffsets
"""
_PICTURES = """
    AdjustContrastv2 AdjustHue AdjustSaturation CombinedNonMaxSuppression CropAndResize DecodeAndCropJpeg DecodeBmp
    DecodeGif DecodeImage DecodeJpeg DecodePng DecodeWebP DrawBoundingBoxesV2 EncodeJpeg EncodeJpegVariableQuality
    EncodePng ExtractGlimpseV2 ExtractJpegShape HSVToRGB ImageProjectiveTransformV3 NonMaxSuppressionV3
    NonMaxSuppressionV4 NonMaxSuppressionV5 RGBToHSV ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor
    ScaleAndTranslate
"""
_FLOW = """
    Assert Case ControlTrigger Enter Exit If LoopCond Merge NextIteration NoOp PartitionedCall StatefulPartitionedCall
    StatelessCase StatelessIf StatelessWhile Switch ToBool While
"""
_TABLES_AND_VARIABLES = """
    AssignVariableOp HashTableV2 InitializeTableFromTextFileV2 InitializeTableV2 LookupTableFindV2 LookupTableSizeV2
    ReadVariableOp VarHandleOp VarIsInitializedOp
"""
ALLOWED = frozenset(
    " ".join([_ARRAYS, _NUMBERS, _LISTS, _STRINGS, _TENSORFLOW_TEXT, _PICTURES, _FLOW, _TABLES_AND_VARIABLES]).split()
)
"""Operations that may stand anywhere in a graph."""
SAVING = frozenset(["MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"])
"""Operations of a SavedModel's functions that save and restore its variables."""
