"""Security checks of SavedModel and Keras files, before anything is run."""
