"""Capture: from a module, function or file to an exported program."""
