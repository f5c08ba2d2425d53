"""The one loop: order, budget, boots, instruments, saving, Ctrl-C, cleaning up."""
