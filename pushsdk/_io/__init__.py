"""The asyncio shell: the core decides, and the shell awaits."""
