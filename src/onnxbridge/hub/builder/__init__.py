"""Writing nodes: the builder that decompositions, adapters and frontends call, and replacement of nodes by others."""
