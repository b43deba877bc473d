"""Names that moved: what was imported before still is, and a notice says where it is now."""

import importlib
import importlib.resources
import sys

import pytest

import regard
from regard.moved import MOVED

NAMES = [
    ("regard.nn.embedding", "Head", "regard.nn.embeddings", "OutputProjection"),
    ("regard.nn.loss", "linear_cross_entropy", "regard.nn.losses.cross_entropy", "linear_cross_entropy"),
    ("regard.data.world", "sentences", "regard.data.synthetic.world", "sentences"),
    ("regard.data.world", "Sentence", "regard.data.synthetic.world", "ParallelSentence"),
    ("regard.training.tasks", "Translation", "regard.training.objectives", "SequenceToSequence"),
    ("regard.runs.translator", "Translator", "regard.tasks.translator", "Translator"),
    ("regard.runs.evaluation", "encode_pair", "regard.tasks.translator", "encode_pair"),
    ("regard.runs.interop.huggingface", "import_directory", "regard.interop.huggingface", "import_directory"),
    ("regard.runs.looking", "Wanted", "regard.tasks.looking", "LookOptions"),
    ("regard.text.vectors", "read_vectors", "regard.text.word_vectors", "read_vectors"),
]


def forget(*modules):
    for name in modules:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(("old", "name", "new", "now"), NAMES)
@pytest.mark.filterwarnings("ignore:regard.runs.interop is now")
def test_an_old_import_works_and_says_where_it_is_now(old, name, new, now):
    forget(old)
    with pytest.warns(FutureWarning, match=rf"{old} is now .*regard"):
        module = importlib.import_module(old)
    assert getattr(module, name) is getattr(importlib.import_module(new), now)
    forget(old)


@pytest.mark.parametrize("old", MOVED)
def test_every_module_that_moved_is_somewhere_and_not_where_it_was(old):
    for place in MOVED[old]:
        importlib.import_module(place)
    parts = old.split(".")[1:]
    package = importlib.resources.files(regard).joinpath(*parts[:-1])
    assert not package.joinpath(f"{parts[-1]}.py").is_file()
    assert not package.joinpath(parts[-1], "__init__.py").is_file()


def test_what_never_was_is_still_missing():
    forget("regard.nn.cache")
    with pytest.warns(FutureWarning, match=r"is now regard\.nn\.kv_cache"):
        module = importlib.import_module("regard.nn.cache")
    with pytest.raises(AttributeError, match=r"it is now regard\.nn\.kv_cache"):
        _ = module.nothing
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("regard.nn.never_was")
    forget("regard.nn.cache")
