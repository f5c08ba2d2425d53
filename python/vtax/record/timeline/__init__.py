"""`vtax timeline`: an event of a recording over time."""
