"""Core ML's file formats: ML programs (MIL), neural networks, pipelines and classical estimators."""
