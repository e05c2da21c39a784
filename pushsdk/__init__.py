"""pushsdk."""
