"""`vtax memory`: where performance falls under a memory limit."""
