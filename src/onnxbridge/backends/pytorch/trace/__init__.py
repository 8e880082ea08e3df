"""Tracing the rules' calls of torch into an FX graph."""
