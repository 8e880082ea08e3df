"""Checks of SavedModel and Keras files before anything of them runs."""
