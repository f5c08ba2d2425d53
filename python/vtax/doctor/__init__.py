"""What this machine can measure, and the remedy for what it cannot: `vtax doctor`."""
