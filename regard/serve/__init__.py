"""Runs behind HTTP: `regard serve`, and the same as an ASGI application. Needs the packages of `regard[serve]`."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.serve.app import make_app
    from regard.serve.limits import Limits
    from regard.serve.server import serve

__all__ = ["Limits", "make_app", "need_packages", "serve"]

PACKAGES = ("starlette", "uvicorn")


def need_packages() -> None:
    """Refuse to serve where the packages that it needs are not there."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise RegardError(f"serving needs {' and '.join(missing)}: pip install 'regard[serve]'")


if not TYPE_CHECKING:  # a checker that sees it would take any name for one of ours

    def __getattr__(name: str) -> Any:
        # Importing does no work, here as in `regard`.
        if name == "Limits":
            from regard.serve.limits import Limits

            return Limits
        if name in __all__:
            need_packages()
            if name == "make_app":
                from regard.serve.app import make_app

                return make_app
            from regard.serve.server import serve

            return serve
        raise AttributeError(f"module 'regard.serve' has no attribute '{name}'")
