"""Tables and progress on a terminal, and plain text where there is none."""
