"""`vtax prices`: what each operation costs where."""
