"""The parts of `convert`: early checks of a request, example inputs, and what is returned."""
