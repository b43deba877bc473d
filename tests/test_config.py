"""Settings from files and from the command line."""

import pytest

from regard import config
from regard.errors import ConfigError


@pytest.mark.parametrize("suffix", ["toml", "json"])
@pytest.mark.parametrize("value", ["[" * 100_000, "1" * 5000, "{"])
def test_a_file_that_is_not_settings_is_named(tmp_path, suffix, value):
    path = tmp_path / f"settings.{suffix}"
    path.write_text(f"a = {value}" if suffix == "toml" else f'{{"a": {value}}}')
    with pytest.raises(ConfigError, match=rf"settings\.{suffix}: "):
        config.read(path)


def test_a_setting_that_is_no_value_is_text():
    for value in ("[" * 100_000, "1" * 5000, "{", "plain words"):
        assert config.override({}, [f"a.b={value}"]) == {"a": {"b": value}}
    assert config.override({"a": {"b": 1}}, ["a.b = [1, 2]", "a.c=true"]) == {"a": {"b": [1, 2], "c": True}}
