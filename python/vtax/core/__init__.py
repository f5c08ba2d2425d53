"""What every verb stands on: runs and their folder, statistics, formats, pages, commands."""
