"""The client for code without asyncio, and its event loop's thread."""
