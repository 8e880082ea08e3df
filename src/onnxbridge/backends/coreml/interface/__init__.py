"""Inputs, outputs and states of a Core ML program."""
