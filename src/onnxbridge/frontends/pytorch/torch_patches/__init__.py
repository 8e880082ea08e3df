"""Temporary patches of PyTorch while a model is traced."""
