"""Submodules and layers of torch.nn recovered from a traced graph."""
