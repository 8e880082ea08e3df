"""MXNet's file formats: symbols and parameters."""
