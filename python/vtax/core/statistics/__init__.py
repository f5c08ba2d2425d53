"""Statistics and results. No machines, no presentation."""
