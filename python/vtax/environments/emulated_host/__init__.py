"""A machine that QEMU emulates to run guests in: its process, its agent, and what is in it."""
