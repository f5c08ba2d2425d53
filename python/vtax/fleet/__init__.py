"""`vtax fleet`: the runs of many hosts, side by side."""
