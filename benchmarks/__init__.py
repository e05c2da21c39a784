"""Side-by-side benchmarks of pushsdk: `python -m benchmarks`, see README.md."""
