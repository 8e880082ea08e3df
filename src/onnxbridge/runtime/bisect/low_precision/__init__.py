"""Which operators add error where a model computes in lower precision, and which to keep in float32."""
