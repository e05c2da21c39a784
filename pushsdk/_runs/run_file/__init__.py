"""The run file: the plan and what became of it, in one SQLite file."""
