"""What TorchScript may hold that a traced program cannot."""


class NotTraceable(Exception):
    """A construct of TorchScript has no counterpart in a traced program."""
