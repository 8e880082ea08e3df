"""A frontend, a backend and a rule for onnxbridge, in a package of their own."""
