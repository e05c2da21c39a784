"""The sans-IO core: no async, no clock, no randomness, no aiohttp, no tenacity, no logging."""
