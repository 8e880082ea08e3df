"""Verification: two models on the same inputs, compared within a derived tolerance."""
