"""Readable Python source for a built module."""
