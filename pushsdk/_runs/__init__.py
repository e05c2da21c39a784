"""Runs: broadcasts that survive their process. Plan, claim, send, settle, report."""
