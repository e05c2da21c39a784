"""The run file: the plan and every user's state, in one SQLite file."""
