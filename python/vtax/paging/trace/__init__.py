"""`vtax paging trace`: a trace of a program in a guest."""
