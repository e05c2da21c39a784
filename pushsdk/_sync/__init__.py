"""How code without an event loop calls the client: one loop in one thread of its own, and what crosses between."""
