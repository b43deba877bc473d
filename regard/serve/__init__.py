"""Runs behind HTTP: `regard serve`, and the same as an ASGI application. Needs the packages of `regard[serve]`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.serve.app import make_app
    from regard.serve.limits import Limits
    from regard.serve.server import serve

__all__ = ["Limits", "make_app", "serve"]


def __getattr__(name: str) -> Any:
    # Importing does no work, here as in `regard`.
    if name == "Limits":
        from regard.serve.limits import Limits

        return Limits
    if name in __all__:
        from regard.serve.packages import need_packages

        need_packages()
        if name == "make_app":
            from regard.serve.app import make_app

            return make_app
        from regard.serve.server import serve

        return serve
    raise AttributeError(f"module 'regard.serve' has no attribute '{name}'")
