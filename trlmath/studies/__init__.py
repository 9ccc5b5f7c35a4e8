"""Studies: several runs in one command, their dependencies, and one table of what came out."""
