"""Measures beside the tolerance, with limits."""
