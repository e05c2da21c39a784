"""Campaigns: their life from acceptance to the end, and the queries behind their segments."""
