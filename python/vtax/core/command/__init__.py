"""What the command lines of verbs share."""
