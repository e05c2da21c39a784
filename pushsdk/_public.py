"""A package's names that are imported on first use, and the module name that public objects show."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Sequence[str], **alone: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package: the first module that has a name defines it.

    ``alone`` has the module for names that load no other module first.
    """
    namespace = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in namespace["__all__"]:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        for module in map(import_module, [alone[name]] if name in alone else modules):
            if hasattr(module, name):
                break
        for loaded in sys.modules.keys() & {*modules}:
            set_public_module(loaded, package)
        namespace[name] = value = getattr(module, name)
        return value

    return get, lambda: namespace["__all__"]


def set_public_module(module: str, package: str) -> None:
    """Have a module's classes and functions that ``package`` exports say ``package.Name`` in tracebacks and pickles.

    msgspec resolves annotations that are strings in the module that a class names, so modules with public Structs don't
    import ``annotations`` from ``__future__``.
    """
    namespace = vars(sys.modules[module])
    for name in sys.modules[package].__all__:
        value = namespace.get(name)
        # Classes that the module imports are left to the module that defines them, whose annotations are objects.
        if str(getattr(value, "__module__", None)).startswith(module):
            value.__module__ = package
