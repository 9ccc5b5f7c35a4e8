"""Planning: what a run will need, and whether this machine has it."""
