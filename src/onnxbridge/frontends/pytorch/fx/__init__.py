"""From an exported program's FX graph to the hub."""
