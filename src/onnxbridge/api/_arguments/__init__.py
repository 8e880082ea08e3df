"""Arguments of the public functions: parsing, and checks before a model is read."""
