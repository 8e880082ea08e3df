"""Conversion of models between opsets."""
