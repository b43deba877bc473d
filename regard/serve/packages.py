"""Whether the packages that serving needs are there."""

from importlib.util import find_spec

from regard.errors import RegardError

PACKAGES = ("starlette", "uvicorn")


def need_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise RegardError(f"serving needs {' and '.join(missing)}: pip install 'regard[serve]'")
