"""`vtax study dav2m --validate`: the model's counts beside those of stock KVM, for real programs.

A program runs in an emulated guest whose trace is simulated, and as a nested guest of the lab.
"""
