"""Training: subclassed TRL trainers and what they are wired with."""
