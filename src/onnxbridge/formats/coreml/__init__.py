"""Readers of Core ML's file formats: ML programs (MIL), neural networks, pipelines and classical machine learning models."""
