"""What a model costs: parameters, multiply-accumulate operations and memory of activations, at given sizes."""
