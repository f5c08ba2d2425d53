"""`vtax study`: the studies of papers, which are packages of their own."""
