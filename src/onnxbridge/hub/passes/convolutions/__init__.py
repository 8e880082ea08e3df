"""Passes that move neighbouring operators into convolutions and other layers with weights."""
