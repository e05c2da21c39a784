"""Texts beside the modules: SQL, JSON and templates."""

import pkgutil


def text_beside(module: str, file: str) -> str:
    """Return the text of a file in the folder of a module, also in a zip, as Spark ships packages."""
    return (pkgutil.get_data(module, file) or b"").decode()
