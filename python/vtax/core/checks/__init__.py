"""What a check of `vtax doctor` is, and the machine that it looks at."""
