"""The recorder as a program, and the rows that it writes."""
