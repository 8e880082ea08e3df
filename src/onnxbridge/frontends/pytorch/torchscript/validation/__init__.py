"""Checks of TorchScript archives before PyTorch reads them."""
