"""The run file: its rows, its commits, its lock."""
