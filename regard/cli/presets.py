"""`regard presets`: which configurations come with it."""

from typing import Annotated

import typer


def presets(
    name: Annotated[str | None, typer.Argument(help="Show this preset whole, as TOML to copy and change.")] = None,
) -> None:
    """List the bundled configurations, or show one."""
    from importlib import resources

    from regard.runs.config import preset_mapping
    from regard.runs.config import presets as known

    if name is None:
        width = max(map(len, known()))
        for preset, about in known().items():
            print(f"{preset:{width}}  {about}")
        return
    preset_mapping(name)
    print((resources.files("regard") / "presets" / f"{name}.toml").read_text(encoding="utf-8"), end="")
