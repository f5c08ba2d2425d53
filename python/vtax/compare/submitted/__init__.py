"""A comparison that Slurm runs without its user, in parts, and that is collected later."""
