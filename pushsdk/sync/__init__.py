"""The client for code without asyncio, and the thread of its event loop."""
