"""The control API: the routes that tests and the page use."""
