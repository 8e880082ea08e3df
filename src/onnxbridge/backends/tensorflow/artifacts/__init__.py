"""The files that a built model is written as, each of which can be opened again and run."""
