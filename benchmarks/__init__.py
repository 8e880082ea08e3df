"""Counts what converters convert rightly, on cases that none of them chose (see README.md)."""
