"""Audience readers: text, Parquet, SQL and columns."""
