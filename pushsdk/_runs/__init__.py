"""Runs: broadcasts that survive their process. Plan, claim, send, settle, report.

A killed process leaves the users in its requests in flight CLAIMED: ``RunFileLog.give_up_claims`` settles them as
UNKNOWN when the run is resumed, and a report shows them as UNKNOWN before that.
"""
