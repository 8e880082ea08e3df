"""Passes that replace the steps of a layer in floating point by one kernel."""
