"""Broadcasts and their runs: plan, journal, sending, report. Over the sender; knows no client."""
