"""`python -m onnxbridge`."""

from onnxbridge.cli import main

main()
