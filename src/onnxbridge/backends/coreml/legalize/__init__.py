"""Rewrites that MIL requires: ranks, static operands, integers."""
