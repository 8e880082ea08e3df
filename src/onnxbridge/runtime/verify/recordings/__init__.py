"""Samples and outputs in files."""
