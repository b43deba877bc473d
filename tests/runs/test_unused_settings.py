"""A setting that does not apply to a task is refused by its name, never passed over in silence."""

import pytest

from regard.errors import ConfigError
from regard.tasks.config import make_config, presets

PRESETS = {
    "translation": "tiny",
    "language": "gpt-tiny",
    "masking": "bert-tiny",
    "classification": "bert-classify",
    "tagging": "bert-tag",
    "answering": "bert-answer",
    "images": "vit-digits",
    "pointing": "pointer-sort",
}

STRANGE = {
    "data.world_seed=2": set(PRESETS) - {"translation"},
    "data.source=de": set(PRESETS) - {"translation"},
    "data.max_len=20": {"images", "pointing"},
    "data.overlong=refuse": set(PRESETS) - {"translation", "classification"},
    "data.text=body": {"translation", "images", "pointing"},
    "data.pair=other": set(PRESETS) - {"classification", "answering"},
    "data.label=kind": set(PRESETS) - {"classification", "tagging", "answering"},
    "data.mask=0.2": set(PRESETS) - {"masking"},
    "data.whole_words=true": set(PRESETS) - {"masking"},
    "data.isolate=true": set(PRESETS) - {"language"},
    "data.puzzle=hull": set(PRESETS) - {"pointing"},
    "data.puzzle_sizes=[5, 6]": set(PRESETS) - {"pointing"},
    "images.flip=true": set(PRESETS) - {"images"},
    "tokenizer.lowercase=true": {"images", "pointing"},
    "tokenizer.joint=false": set(PRESETS) - {"translation"},
    "tokenizer.variants=3": set(PRESETS) - {"translation"},
    "train.vectors=words.txt": {"images", "pointing"},
    "train.pack=always": set(PRESETS) - {"translation"},
    "decode.min_len=3": set(PRESETS) - {"translation", "language", "pointing"},
}


@pytest.mark.parametrize("setting", STRANGE)
@pytest.mark.parametrize("task", PRESETS)
def test_what_a_task_has_no_use_for_is_refused_by_name(task, setting):
    name = setting.partition("=")[0]
    try:
        make_config(None, PRESETS[task], [setting])
        said = ""
    except ConfigError as error:  # perhaps of another kind, such as data.isolate for a model that cannot
        said = str(error)
    refused = said.startswith((f"{name} ", f"{name}=")) and f" does not apply to task='{task}'" in said
    assert refused == (task in STRANGE[setting]), said


@pytest.mark.parametrize("name", sorted(presets()))
def test_what_is_shown_of_a_preset_is_what_it_may_set(name):
    shown = make_config(None, name).every_setting()
    assert make_config(None, None, (), shown).every_setting() == shown


def test_only_what_applies_to_a_task_is_shown():
    shown = make_config(None, "gpt-tiny").every_setting()
    assert "images" not in shown
    assert "puzzle" not in shown["data"]
    assert "isolate" in shown["data"]
