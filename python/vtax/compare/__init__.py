"""`vtax compare` and `vtax report`: what environments cost a workload."""
