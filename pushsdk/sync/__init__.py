"""The client for code without asyncio, and the thread that its event loop runs in."""
