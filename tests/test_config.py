"""Settings from files and from the command line."""

import pytest

from regard import config
from regard.errors import ConfigError, nearest
from regard.tasks.config import SECTIONS
from regard.tasks.spec import field_names


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


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        (
            "layers",
            ("decoder_layers", "encoder_layers", "layer_drop"),
            "'model.decoder_layers' or 'model.encoder_layers'",
        ),
        ("lr", field_names(SECTIONS["train"]), "'model.learning_rate'"),
        ("every", field_names(SECTIONS["train"]), "'model.log_every', 'model.save_every' or 'model.validate_every'"),
        ("en", ("target.fr", "source.en"), "'model.source.en'"),
        ("head", ("copy_head", "heads"), "'model.heads'"),
        ("laeyrs", ("decoder_layers", "layers"), "'model.layers'"),
        ("norm", ("norm_a", "norm_b", "norm_c", "norm_d", "norms"), "'model.norms'"),
    ],
)
def test_names_that_a_word_is_a_part_of_or_the_initials_of_are_proposed(word, known, meant):
    assert nearest(word, known, "model.") == f"; did you mean {meant}?"


def test_where_no_name_is_near_all_are_listed():
    assert nearest("x", ("one", "x_first")) == "; known: one, x_first"
