"""The run file: the plan and the state of every user, in one SQLite file."""
