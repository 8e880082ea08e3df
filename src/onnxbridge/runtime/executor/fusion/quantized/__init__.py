"""Passes that replace the steps of a quantized layer by one kernel."""
