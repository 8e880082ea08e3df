"""TorchScript: validation of archives, and an interpreter that torch.export can trace."""
