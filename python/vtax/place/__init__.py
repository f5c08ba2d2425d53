"""`vtax place`: which work of this host for guests may go to slow cores."""
