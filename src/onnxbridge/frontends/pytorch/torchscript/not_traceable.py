"""The error for constructs of TorchScript that cannot be traced."""


class NotTraceable(Exception):
    """A construct of TorchScript has no equivalent in a traced program."""
