#!/usr/bin/env bash
# An MXNet checkpoint becomes a PyTorch program and an ONNX file, without MXNet.
#
#     mxnet_rescue.sh net-symbol.json net-0000.params "data:float32[N,3,224,224]" OUT_FOLDER
#
# With the environment of `onnxbridge doctor --setup-mxnet` the results are compared with MXNet itself; without it they are
# compared with each other, and the verdict is WEAK.
set -euo pipefail

symbol=$1 params=$2 inputs=$3 folder=$4
mkdir -p "$folder"

# What is in it, and is there anything that cannot be converted? The first needs no shapes.
onnxbridge inspect "$symbol" "$params"
onnxbridge check "$symbol" "$params" --inputs "$inputs" --to onnx --to pytorch

onnxbridge convert "$symbol" "$params" --inputs "$inputs" --to onnx --output "$folder/net.onnx"
onnxbridge convert "$symbol" "$params" --inputs "$inputs" --to pytorch --output "$folder/net.pt2"

# The two results against each other
onnxbridge verify "$folder/net.onnx" "$folder/net.pt2"
