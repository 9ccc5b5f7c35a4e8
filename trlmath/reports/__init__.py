"""Reports: what a run shows, in the terminal and as a page."""
