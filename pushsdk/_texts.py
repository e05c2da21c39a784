"""Texts beside the modules: SQL, JSON and templates."""

import pkgutil
from typing import Any


def text_beside(module: str, file: str) -> str:
    """Return the text of a file in the folder of a module, also in a zip, as Spark ships packages."""
    data: Any = pkgutil.get_data(module, file)  # None if the module's loader reads no files, which must not pass
    return str(data, "utf-8")
