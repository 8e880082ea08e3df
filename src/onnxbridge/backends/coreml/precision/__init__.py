"""Float16: which operators compute in it."""
