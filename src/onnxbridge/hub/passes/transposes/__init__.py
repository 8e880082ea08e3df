"""Propagates transposes through a graph and cancels them."""
