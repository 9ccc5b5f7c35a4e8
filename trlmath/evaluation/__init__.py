"""Evaluation: how good a model is, how sure we are, and what goes wrong."""
