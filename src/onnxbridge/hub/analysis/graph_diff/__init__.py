"""Differences of two models as graphs: nodes and weights are matched, and what differs is reported."""
