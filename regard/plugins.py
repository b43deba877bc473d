"""Registries of models, tasks, scores and metrics: what comes with regard, and what other packages add by entry points.

A package adds to a group by its metadata, for example in its `pyproject.toml`:

    [project.entry-points."regard.models"]
    road = "regard_road.model:MODEL"

Names are listed from the metadata alone; what stands behind a name is imported when it is first asked for.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from regard.errors import ConfigError, nearest

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Things by name. Those built in are given as they are, or as `module:name`, to be imported when they are needed.

    A package cannot replace what is built in, nor two packages give one name: both are refused by name.
    """

    def __init__(self, group: str, what: str, built_in: Mapping[str, T | str]) -> None:
        self.group, self.what = group, what
        self._built_in, self._loaded = dict(built_in), {}

    @cached_property
    def _added(self) -> dict[str, EntryPoint]:
        added: dict[str, EntryPoint] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: (point.name, point.value)):
            known = added.get(point.name)
            if known is not None and known.value == point.value:
                continue  # one package seen twice, as where it is installed for development
            if point.name in self._built_in or known is not None:
                other = "regard itself" if known is None else f"'{known.value}'"
                raise ConfigError(f"the {self.what} '{point.name}' of '{point.value}' is one of {other} already")
            added[point.name] = point
        return added

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from self._added

    def __len__(self) -> int:
        return len(self._built_in) + len(self._added)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._built_in or name in self._added)

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def named(self, name: object) -> T:
        """The same, in a sentence where there is no such name."""
        if not isinstance(name, str) or name not in self:
            raise ConfigError(f"unknown {self.what} '{name}'{nearest(str(name), self)}")
        return self[name]

    def origin(self, name: str) -> str:
        """The package that a name comes from, known from its metadata."""
        if name in self._built_in:
            return "regard"
        package = self._added[name].dist
        return self._added[name].value.partition(":")[0] if package is None else package.name

    def _load(self, name: str) -> Any:
        found = self._built_in.get(name)
        if found is None:
            point = self._added[name]
            try:
                return point.load()
            except (ImportError, AttributeError) as error:
                raise ConfigError(f"the {self.what} '{name}' of '{point.value}' cannot be loaded: {error}") from error
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            return getattr(import_module(module), attribute)
        return found
