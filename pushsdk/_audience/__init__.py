"""The readers of audiences: text, Parquet, SQL and columns."""
