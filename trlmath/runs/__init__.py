"""Runs: the directory a run writes, and what stands in it."""
