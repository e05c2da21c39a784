"""The asyncio shell: it awaits what the core decides."""
