"""A run beside earlier ones: what got worse, for CI, and series for a tool that finds changes."""
