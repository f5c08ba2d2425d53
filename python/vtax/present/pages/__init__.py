"""The page of each verb: what it found, for a terminal, a report and Markdown alike."""
