"""From what users hand in to an exported program."""
