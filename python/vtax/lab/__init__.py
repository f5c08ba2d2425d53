"""`vtax lab`: a command beside stock KVM in an emulated host."""
