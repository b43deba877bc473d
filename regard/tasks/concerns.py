"""Which settings say something to which kind of run. One that says nothing is refused: nobody sets it to no purpose."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from regard.errors import ConfigError

PAIRS = ("translation",)
RUNNING = ("language", "masking")
LABELLED = ("classification", "tagging", "answering")
READING = (*PAIRS, *RUNNING, *LABELLED)
"""Tasks whose input is text."""

CONCERNED: dict[str, tuple[str, ...]] = {
    "data.world": PAIRS,
    "data.world_seed": PAIRS,
    "data.world_grammar": PAIRS,
    "data.source": PAIRS,
    "data.target": PAIRS,
    "data.max_len": READING,
    "data.overlong": (*PAIRS, "classification"),
    "data.text": (*RUNNING, *LABELLED),
    "data.pair": ("classification", "answering"),
    "data.label": LABELLED,
    "data.header": READING,
    "data.mask": ("masking",),
    "data.whole_words": ("masking",),
    "data.isolate": ("language",),
    "data.carry": ("language",),
    "data.puzzle": ("pointing",),
    "data.puzzle_sizes": ("pointing",),
    "images": ("images",),
    "tokenizer": READING,
    "tokenizer.joint": PAIRS,
    "tokenizer.source_kind": PAIRS,
    "tokenizer.target_kind": PAIRS,
    "tokenizer.dropout": PAIRS,
    "tokenizer.variants": PAIRS,
    "train.vectors": READING,
    "train.compile_loss": PAIRS,
    "train.r_drop": (*PAIRS, *LABELLED),
    "decode": (*PAIRS, "language", "pointing"),
}
"""The tasks that a setting, or a whole section, is for; all tasks where it is not named."""


def concerns(name: str, task: str) -> bool:
    """Whether a setting such as `data.mask`, or a section, says anything to a run of this task."""
    section = name.partition(".")[0]
    return all(task in CONCERNED.get(one, (task,)) for one in {section, name})


def refuse_strangers(sections: Mapping[str, Any], task: str) -> None:
    """Refuse a setting of these sections that is not as it is by default and says nothing to a run of this task."""
    for section, config in sections.items():
        before = type(config)()
        for one in fields(config):
            name, value = f"{section}.{one.name}", getattr(config, one.name)
            if value != getattr(before, one.name) and not concerns(name, task):
                tasks = CONCERNED.get(name, CONCERNED.get(section, ()))
                raise ConfigError(f"{name} is for {_listed(tasks)}, not for task='{task}'")


def _listed(tasks: tuple[str, ...]) -> str:
    return f"task='{tasks[0]}'" if len(tasks) == 1 else ", ".join(tasks)
