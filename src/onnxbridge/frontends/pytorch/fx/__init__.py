"""Conversion of an exported program's FX graph to a hub model."""
