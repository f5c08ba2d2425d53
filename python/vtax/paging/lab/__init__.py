"""`vtax paging lab`: both paging modes of real KVM, in the lab."""
