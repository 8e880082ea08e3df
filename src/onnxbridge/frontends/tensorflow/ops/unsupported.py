"""Operators without a rule that people meet, and why."""

from onnxbridge.frontends.tensorflow.ops import rule

BEFORE = "do this before the model; --inputs-at NAME converts the part behind it"

rule.unsupported(
    "PyFunc", "PyFuncStateless", "EagerPyFunc",
    reason="it calls Python code of the program that made the model",
    hint="write the function with TensorFlow's operators",
)  # fmt: skip
rule.unsupported(
    "DecodeAndCropJpeg", "DecodeBmp", "DecodeGif", "DecodeImage", "DecodeJpeg", "DecodePng", "DecodeWebP", "DecodeWav",
    "DecodeRaw", "DecodePaddedRaw", "DecodeCompressed", "DecodeCSV", "DecodeBase64", "ReadFile", "EncodeJpeg", "EncodePng",
    "EncodeWav",
    reason="it decodes or encodes files, which ONNX Runtime does not", hint=BEFORE,
)  # fmt: skip
rule.unsupported(
    "ParseExample", "ParseExampleV2", "ParseSequenceExample", "ParseSequenceExampleV2", "ParseSingleExample",
    "ParseSingleSequenceExample", "DecodeProtoV2", "ParseTensor",
    reason="it parses records (tf.train.Example, protocol buffers)", hint=BEFORE,
)  # fmt: skip
rule.unsupported(
    "IteratorGetNext", "IteratorV2", "OneShotIterator", "FIFOQueueV2", "PaddingFIFOQueueV2", "RandomShuffleQueueV2",
    "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2", "QueueEnqueueV2", "QueueEnqueueManyV2",
    reason="it belongs to an input pipeline", hint=BEFORE,
)  # fmt: skip
rule.unsupported(
    "CudnnRNN", "CudnnRNNV2", "CudnnRNNV3",
    reason="its weights have cuDNN's format, and TensorFlow has it on GPUs only",
    hint="load the weights into keras.layers.LSTM or GRU and convert that",
)  # fmt: skip
rule.unsupported(
    "CTCLoss", "CTCLossV2", "CTCBeamSearchDecoder", "EditDistance", "SampleDistortedBoundingBox",
    "StatelessSampleDistortedBoundingBox", "DrawBoundingBoxes", "DrawBoundingBoxesV2",
    reason="it is for training, or prepares or shows results", hint="convert the network up to it: --outputs-at NAME",
)  # fmt: skip
rule.unsupported(
    "MatrixSquareRoot", "MatrixLogarithm", "MatrixExponential", "complex::MatrixSquareRoot", "complex::MatrixLogarithm",
    "complex::MatrixExponential", "complex::Eig",
    reason="ONNX has no such function of general matrices",
)  # fmt: skip
rule.unsupported(
    "StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong", "Fingerprint", "SparseCross", "SparseCrossV2",
    "SparseCrossHashed", "RaggedCross",
    reason="ONNX has no such hash of strings", hint="use a table of words (StringLookup), or hash before the model",
)  # fmt: skip
rule.unsupported(
    "UnicodeDecode", "UnicodeDecodeWithOffsets", "UnicodeEncode", "UnicodeScript", "StringNGrams", "StringFormat",
    reason="ONNX's operators on strings do not look at characters", hint=BEFORE,
)  # fmt: skip
rule.unsupported(
    "RandomGamma", "RandomPoisson", "RandomPoissonV2", "StatelessRandomGammaV2", "StatelessRandomGammaV3",
    "StatelessRandomPoisson", "StatefulRandomBinomial", "StatelessRandomBinomial", "FractionalAvgPool", "FractionalMaxPool",
    reason="its random numbers cannot be drawn with ONNX's operators",
)  # fmt: skip
