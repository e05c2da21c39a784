"""The module name that public objects show."""

import sys


def set_public_module(module: str, package: str = "pushsdk") -> None:
    """Have a module's classes and functions that ``package`` exports say ``package.Name`` in tracebacks and pickles.

    Called at the end of the module. msgspec resolves annotations that are strings in the module that a class names, so
    modules with public Structs don't import ``annotations`` from ``__future__``.
    """
    namespace = vars(sys.modules[module])
    for name in sys.modules[package].__all__:
        value = namespace.get(name)
        # Classes that the module imports are left to their own module, whose annotations are objects.
        if str(getattr(value, "__module__", None)).startswith(module):
            value.__module__ = package
