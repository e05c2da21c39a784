"""Readers of audiences: text and table files, queries, ids made distinct, and the chunks they are cut into."""
