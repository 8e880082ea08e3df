"""A third-party package with a frontend, a backend and a rule for onnxbridge."""
