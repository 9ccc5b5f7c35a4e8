"""Datasets: loading, filtering, prompts and the nano task."""
