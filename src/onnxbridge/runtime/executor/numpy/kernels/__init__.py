"""Numeric kernels on plain NumPy arrays, shared by the executor and by the MIL interpreter.

They know no framework's names. They compute in the type of their arguments: who wants float16 data accumulated in float32
widens it first. Tensors are laid out (batch, channel, *space).
"""
