"""Running compiled kernels: recording calls, threads and work partition."""
