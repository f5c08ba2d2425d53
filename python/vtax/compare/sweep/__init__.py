"""`vtax compare --param`: a comparison for each combination of values, in one run."""
