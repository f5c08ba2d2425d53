"""`vtax tune`: the parameters with which matrix kernels are fastest, and whether they transfer."""
