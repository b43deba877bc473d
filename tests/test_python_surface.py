"""What a user does from Python alone: train on what is in memory, set things by keyword, look, and be told mistakes."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import regard
from regard.errors import RegardError
from regard.tasks.spec import Report

ENGLISH = ["I am a student.", "Thanks.", "The animal was tired.", "It was wide."]
FRENCH = ["Je suis étudiant.", "Merci.", "L'animal était fatigué.", "Elle était large."]
PAIRS = [*zip(ENGLISH, FRENCH, strict=True)] * 6
NARROW = {"width": 16, "heads": 2, "feed_forward": 24, "max_len": 64}
BRIEF = {"steps": 2, "warmup": 2, "threads": 1, "validate_every": 100, "log_every": 1}
SHORT = {"max_len": 64}
SMALL = {"model": NARROW, "train": BRIEF, "decode": {"max_len": 8}}


def data(rows, **settings):
    return {"train": rows, **SHORT, **settings}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return regard.train("tiny", data=data(PAIRS, valid=PAIRS[:2]), out=tmp_path_factory.mktemp("s") / "run", **SMALL)


def test_pairs_in_memory_become_a_run_that_can_be_used_and_resumed_without_them(run):
    assert len(run.translate(["Thanks."], beam=1)) == 1
    assert run.config.data.train == (str(run.directory / "data/train.jsonl"),)
    assert run.config.model["width"] == 16
    longer = regard.resume(run.directory, train={"steps": 3})
    assert longer.config.train.steps == 3
    with pytest.raises(regard.ConfigError, match=r"'train.vectors=x' says what a run starts from"):
        regard.resume(run.directory, train={"vectors": "x"})


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(lambda: (pair for pair in PAIRS), id="generator"),
        pytest.param(lambda: [{"en": one, "fr": other, "number": 1} for one, other in PAIRS], id="dicts"),
        pytest.param(lambda: [{"english": one, "french": other} for one, other in PAIRS], id="other names"),
        pytest.param(lambda: {"en": ENGLISH * 6, "fr": FRENCH * 6}, id="columns"),
    ],
)
def test_rows_of_many_kinds_are_read(rows, tmp_path):
    found = regard.train("tiny", data=data(rows()), out=tmp_path / "run", **SMALL)
    assert Path(found.config.data.train[0]).read_text(encoding="utf-8").count("\n") == len(PAIRS)


@pytest.mark.skipif(importlib.util.find_spec("pandas") is None, reason="pandas is not installed")
def test_a_frame_is_read(tmp_path):
    import pandas

    frame = pandas.DataFrame({"en": ENGLISH * 6, "fr": FRENCH * 6})
    assert regard.train("tiny", data=data(frame), out=tmp_path / "run", **SMALL).translate(["Thanks."], beam=1)


def test_texts_and_labelled_texts_are_read(tmp_path):
    texts = ["The sun was good. The sea was bad.", "One day the king was bad."] * 20
    small = {"width": 16, "heads": 2, "layers": 1, "feed_forward": 24, "max_len": 32}
    brief = {**BRIEF, "batch_tokens": 256}
    words = regard.train(
        "gpt-tiny", data=data(texts, max_len=32), out=tmp_path / "gpt", model=small, train=brief, decode={"max_len": 8}
    )
    assert len(words.generate("The")) == 1
    labelled = [(text, label) for text, label in zip(texts, ["good", "bad"] * 20, strict=True)]
    kinds = regard.train(
        "bert-classify",
        data=data(labelled, max_len=32),
        out=tmp_path / "classes",
        model=small,
        train=brief | {"start_from": None},
        tokenizer={"vocab_size": 100},
    )
    assert {choice.label for choice in kinds.classify(["The sea was bad."])[0]} == {"good", "bad"}


def test_without_a_preset_the_run_is_planned(tmp_path):
    made = regard.train(data=PAIRS, out=tmp_path / "run", **SMALL)
    assert (made.directory / "plan.md").exists()
    assert made.config.model["width"] == 16


def test_settings_are_given_by_file_preset_keyword_and_text(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('task = "translation"\n[data]\nworld = 100\n[model]\nname = "transformer"\n', encoding="utf-8")
    assert regard.make_config(str(file)).data.world == 100
    assert regard.make_config(file, train={"steps": 7}).train.steps == 7
    config = (
        regard.make_config("tiny", "", "train.steps=9") if False else regard.make_config("tiny", train={"steps": 9})
    )
    assert config.train.steps == 9
    assert regard.make_config("tiny", overrides="train.steps=8", train={"steps": 9}).train.steps == 8
    assert regard.make_config("tiny", data={"train": [Path("a.tsv")]}).data.train == ("a.tsv",)


MISTAKES = {
    "no such preset": lambda out: regard.train("tinny", data=PAIRS, out=out),
    "nothing to train on": lambda out: regard.train(out=out),
    "no place": lambda out: regard.train("tiny", data=PAIRS),
    "no such setting": lambda out: regard.train("tiny", data=PAIRS, out=out, train={"step": 3}),
    "data of no kind": lambda out: regard.train("tiny", data=3, out=out),
    "no rows": lambda out: regard.train("tiny", data=iter(()), out=out),
    "rows of three": lambda out: regard.train("tiny", data=[("a", "b", "c c")], out=out),
    "rows for images": lambda out: regard.train("vit-mnist", data=[("a b", "c")], out=out),
    "settings twice": lambda out: regard.train(regard.make_config("tiny"), out, train={"steps": 3}),
    "valid twice": lambda out: regard.train("tiny", data={"train": PAIRS, "valid": PAIRS}, valid=PAIRS, out=out),
    "minutes with a preset": lambda out: regard.train("tiny", data=PAIRS, out=out, minutes=3),
    "columns of other names": lambda out: regard.train("tiny", data=[{"number": 1}], out=out),
    "not a number": lambda out: regard.train("tiny", data=PAIRS, out=out, train={"learning_rate": float("nan")}),
    "files that are not there": lambda out: regard.train("tiny", data=["train.en", "train.fr"], out=out),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_said_in_one_line_and_leaves_nothing(mistake, tmp_path):
    with pytest.raises(RegardError) as told:
        mistake(tmp_path / "runs" / "x")
    assert str(told.value).strip()
    assert not (tmp_path / "runs").exists()


OF_OTHER_KINDS = """
import regard
PAIRS = [("a", "b")] * 9
run = regard.load({run!r})
for wrong in (
    lambda: regard.train("tiny", data=PAIRS, out="x", train=3),
    lambda: regard.make_config("tiny", train={3: 3}),
    lambda: regard.make_config("tiny", overrides=[3]),
    lambda: regard.train(PAIRS, "x"),
    lambda: regard.resume("x", train=3),
    lambda: regard.make_config(3),
    lambda: regard.make_config("tiny", overrides=3),
    lambda: regard.train("tiny", data=PAIRS, out=4),
    lambda: regard.train("tiny", data=PAIRS, out="x", report=3),
    lambda: regard.load(None),
    lambda: regard.resume(3),
    lambda: regard.evaluate("runs/x"),
    lambda: regard.plan(3),
    lambda: regard.watch(3).__enter__(),
    lambda: run.translate(3),
    lambda: run.translate([3]),
    lambda: run.translate(["a"], beam="five"),
    lambda: run.look(3),
    lambda: run.look("a").save("nowhere/page.html"),
    lambda: run.ask("translate", None),
    lambda: regard.watch(run.model, 3).__enter__(),
    lambda: regard.make_config("tiny", ["model.width=32"]),
    lambda: regard.serve.make_app(3),
):
    try:
        wrong()
        print("no error")
    except regard.RegardError as error:
        print("said:", error)
"""


def test_values_of_other_kinds_are_mistakes_too(run, tmp_path):
    """In a process of its own: here the types of arguments are checked before they are seen."""
    command = [sys.executable, "-c", OF_OTHER_KINDS.replace("{run!r}", repr(str(run.directory)))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=_path())
    assert done.stdout.count("said:") == 23, done.stdout + done.stderr[-2000:]
    assert not [*tmp_path.iterdir()]


ROWS = "for rows, regard.train(data=rows, out=...) plans a run and trains it"
WRONG_PLANS = {
    "[('a b', 'c d')] * 9": ("must be names of files or folders, not [('a b', 'c d'), ", ROWS),
    "[['a b', 'c d']] * 9": ("must be names of files or folders, not [['a b', 'c d'], ", ROWS),
    "[{'en': 'a', 'fr': 'b'}]": ("must be names of files or folders, not [{'en': 'a', 'fr': 'b'}]; ", ROWS),
    "{'en': ['a'], 'fr': ['b']}": ("must be names of files or folders, not {'en': ['a'], 'fr': ['b']}; ", ROWS),
    "['absent.tsv'], valid=[('a', 'b')]": ("must be names of files or folders, not [('a', 'b')]; ", ROWS),
    "['She is a student.', 'Yes.']": ("no such file or folder: 'She is a student.'; names of files or folders are",),
    "['train.en', 'train.fr']": ("no such file or folder: train.en",),
    "'mine.tsv', minutes='5'": ("minutes='5' must be a number",),
    "'mine.tsv', minutes=True": ("minutes=True must be a number",),
    "'mine.tsv', minutes=float('nan')": ("minutes=nan must be above 0 and finite",),
    "'mine.tsv', minutes=10**400": ("must be above 0 and finite",),
    "[]": ("no training data: name your files or folders, after --data or as the first argument of regard.plan",),
}


@pytest.fixture(scope="module")
def said_of_plans(tmp_path_factory):
    """In a process of its own, as above: what is said of each wrong argument."""
    tries = "".join(
        f"try:\n regard.plan({given})\nexcept regard.RegardError as error:\n print(error)\n" for given in WRONG_PLANS
    )
    command, folder = [sys.executable, "-c", f"import regard\n{tries}"], tmp_path_factory.mktemp("plans")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=_path())
    return dict(zip(WRONG_PLANS, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("given", WRONG_PLANS)
def test_what_cannot_be_planned_for_is_said_with_what_to_give(said_of_plans, given):
    assert [part for part in WRONG_PLANS[given] if part not in said_of_plans[given]] == []


def test_a_dict_of_columns_is_a_table_and_no_settings(tmp_path):
    settings = {**SMALL, "overrides": ["data.max_len=64"]}
    found = regard.train("tiny", data={"en": ENGLISH * 6, "fr": FRENCH * 6}, out=tmp_path / "run", **settings)
    assert Path(found.config.data.train[0]).read_text(encoding="utf-8").count("\n") == len(PAIRS)


def test_one_file_can_be_named_without_a_list(run, tmp_path):
    table, absent = tmp_path / "pairs.tsv", str(tmp_path / "absent.tsv")
    table.write_text("".join(f"{one}\t{other}\n" for one, other in PAIRS[:2]), encoding="utf-8")
    for name in (table, str(table)):
        assert regard.evaluate(run, name)["sentences"] == 2
    for measure in (regard.evaluate, type(run).heads):
        with pytest.raises(RegardError, match="no such file"):
            measure(run, absent)


def test_what_is_said_of_a_wrong_first_argument_names_it():
    with pytest.raises(regard.ConfigError, match=r"file; did you mean 'tiny'\?$"):
        regard.make_config("tinny")
    with pytest.raises(regard.ConfigError, match="two presets are given: 'tiny'"):
        regard.make_config("tiny", "demo")
    with pytest.raises(regard.DataError, match=r"no such file: 'train\.en'; rows in place of files have 2 values each"):
        regard.train("tiny", data=["train.en", "train.fr"], out="nowhere")


def test_a_run_says_what_it_is_and_what_it_can(run):
    said = repr(run)
    for word in ("translation", "parameters", "cpu", "translate", "score", "look", "heads"):
        assert word in said
    assert {"look", "heads", "translate", "ask"} <= {*dir(run)}


def test_a_run_is_looked_into_and_its_page_shown_and_saved(run, tmp_path):
    found = run.look("Thanks.", layers="decoder.*", beam=1)
    assert {one.name.partition(".")[0] for one in found.sentences[0].attentions} == {"decoder"}
    assert "<iframe" in found._repr_html_()
    assert found.save(tmp_path / "page.html").stat().st_size > 10_000
    assert len(run.look(ENGLISH[:2], heads=0, targets=FRENCH[:2]).sentences) == 2
    for wrong in ({"inputs": []}, {"inputs": "a", "layers": "nothing"}, {"inputs": "a", "heads": 99}):
        with pytest.raises(RegardError):
            run.look(**wrong)


def test_heads_are_told_as_a_table(run, monkeypatch):
    from regard.analysis import heads_page

    asked = {}

    def roles(given, corpus, **options):
        asked.update(options)
        evidence = {"role": "previous", "accuracy": 0.9, "low": 0.8, "high": 0.95, "baseline": 0.1, "rule": "chance"}
        head = {"attention": "encoder.0", "head": 1, "role": "previous", "evidence": {**evidence, "questions": 10}}
        measures = {"entropy": 1.0, "distance": 2.0}
        return {
            **{"sentences": 4, "untrained_models": 2, "false_positive_rate": 0.05},
            "heads": [{**head, "also": [], "measures": measures}],
        }

    monkeypatch.setattr(heads_page, "head_roles", roles)
    found = run.heads(limit=7)
    assert asked["limit"] == 7
    assert found["heads"][0]["head"] == 1
    assert "1 of 1 heads have a role" in repr(found)
    assert "previous" in found._repr_html_()


def messages(caught):
    return [str(one.message) for one in caught if issubclass(one.category, regard.RegardWarning)]


def test_without_a_report_rows_that_are_lost_are_warned_of_at_the_callers_line(tmp_path):
    rows = data([*PAIRS, ("Thanks.", "")], valid=[*PAIRS[:2], ("", "Merci.")])
    with pytest.warns(regard.RegardWarning) as caught:
        regard.train("tiny", data=rows, out=tmp_path / "run", **SMALL)
    lost, held_out, *_ = messages(caught)
    assert re.fullmatch(r"24 pairs \(.*\); 1 skipped with a blank side", lost)
    assert re.fullmatch(r"validation: 2 pairs \(.*\); 1 skipped with a blank side", held_out)
    assert not any(one.filename.startswith(str(Path(regard.__file__).parent)) for one in caught)


def test_without_a_report_a_plan_a_guard_rail_a_guess_and_damage_are_warned_of(tmp_path):
    rows = [{"english": one, "french": other} for one, other in PAIRS]
    twice = {**SMALL, "train": {**BRIEF, "save_every": 1}}
    with pytest.warns(regard.RegardWarning) as caught:
        regard.train("tiny", data=data(rows), out=tmp_path / "guessed", **twice)
    assert messages(caught) == ["columns: data.source=english, data.target=french"]
    (tmp_path / "guessed/checkpoints/step-2/model.safetensors").write_bytes(b"")
    with pytest.warns(regard.RegardWarning, match="step-2 is set aside"):
        regard.resume(tmp_path / "guessed")
    frozen = {**BRIEF, "steps": 60, "warmup": 60, "learning_rate": 1e-12}
    with pytest.warns(regard.RegardWarning, match="loss not falling") as caught:
        regard.train(data=PAIRS, valid=PAIRS[:2], out=tmp_path / "planned", model=NARROW, train=frozen)
    assert any(one.startswith("note: there are 24 rows: too few") for one in messages(caught))


def test_a_report_hears_warnings_by_warn_or_else_by_say(tmp_path):
    class Says:
        def __init__(self):
            self.said = []

        def say(self, text):
            self.said.append(text)

        def progress(self, what, pairs): ...
        def step(self, values, total): ...
        def validation(self, values): ...

    class Warns(Says):
        def warn(self, text):
            self.said.append(f"! {text}")

    for kind, mark in ((Says, ""), (Warns, "! ")):
        heard = kind()
        with warnings.catch_warnings():
            warnings.simplefilter("error", regard.RegardWarning)
            regard.train("tiny", data=data([*PAIRS, ("", "x")]), out=tmp_path / kind.__name__, report=heard, **SMALL)
        assert any(one.startswith(f"{mark}24 pairs") for one in heard.said)


def test_evaluating_warns_of_what_is_left_out_and_cut(run):
    with pytest.warns(regard.RegardWarning) as caught:
        regard.evaluate(run, [*PAIRS[:2], ("", "Merci.")], beam=1, max_len=1)
    left, cut = messages(caught)
    assert left == "1 of 3 pairs have a blank side and are left out"
    assert cut.startswith("2 of 2 outputs were cut")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regard.evaluate(run, [*PAIRS[:2], ("", "Merci.")], beam=1, max_len=1, say=None)
    with pytest.raises(regard.DataError, match="item 2 to evaluate on is no pair of a source and a target: 'Thanks"):
        regard.evaluate(run, [PAIRS[0], "Thanks."])


WARNED = """
import sys
import warnings
import regard
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", regard.RegardWarning)
    loading = sys.modules[regard.Run.__module__]
    loading._multiplies_bfloat16 = lambda: False
    run = regard.load({run!r}, "cpu", "bfloat16")
    regard.watch
    sys.modules["regard.look.watch"].past_the_interface = lambda model: ["LocalAttention"]
    with regard.watch(run.model):
        pass
for one in caught:
    print(one.filename, one.lineno, one.message)
"""


def test_loading_and_watching_warn_at_the_callers_line(run, tmp_path):
    """In a process of its own: here checks of types stand between the two."""
    script = tmp_path / "script.py"
    script.write_text(WARNED.replace("{run!r}", repr(str(run.directory))), encoding="utf-8")
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=_path())
    loading, watching = done.stdout.splitlines() or [done.stderr[-2000:], ""]
    assert loading.startswith(f"{script} 10 precision=bfloat16: this processor does not multiply")
    assert watching == f"{script} 13 not seen: LocalAttention, past transformers' attention interface"


def test_every_public_name_is_listed_and_found():
    assert {*regard.__all__, "nn", "serve", "look", "data"} <= {*dir(regard)}
    for name in dir(regard):
        assert getattr(regard, name) is not None or name.startswith("__")
    assert regard.nn.attention is not None
    with pytest.raises(AttributeError):
        _ = regard.nothing


def test_live_curves_are_a_report(monkeypatch):
    import types

    shown = []
    handle = types.SimpleNamespace(update=shown.append)
    display = types.ModuleType("IPython.display")
    display.HTML, display.display = str, lambda *args, **kwargs: handle
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    live = regard.LiveCurves()
    assert isinstance(live, Report)
    live.say("reading <pairs>")
    assert "&lt;pairs&gt;" in shown[-1]
    for step in (1, 2):
        live.step({"step": step, "loss": 3.0 / step}, 2)
    live.warn("3 <rows> were skipped")
    live.validation({"step": 2, "loss": 2.0})
    assert "update 2 of 2" in shown[-1]
    assert "3 &lt;rows&gt; were skipped" in shown[-1]
    assert shown[-1].count("<polyline") + shown[-1].count("<path") >= 2
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(regard.ConfigError, match="notebook"):
        regard.LiveCurves()


SCRIPT = """import regard
run = regard.load("x")
reveal_type(run)
reveal_type(regard.train("tiny", data=[("a", "b")], out="x"))
reveal_type(run.look("a"))
reveal_type(regard.make_config("tiny").train.steps)
with regard.watch(run.model) as trace:
    reveal_type(trace)
reveal_type(regard.look.HeadMeasures.__name__)
reveal_type(regard.serve.Limits().queue)
regard.train("tiny", data=[], out="x", stpes=3)
regard.trian("tiny")
"""
"""What a user writes, asked for its types; the last two lines are mistakes."""


def told_of_types(tmp_path, checker, *options, **paths):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", checker, *options, str(script)]
    environment = {**os.environ, **_path(), **paths}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment).stdout


def test_pyright_sees_the_types_of_a_script(tmp_path):
    told = told_of_types(tmp_path, "basedpyright", "--pythonpath", sys.executable)
    types = re.findall(r'information: Type of ".*" is "(.*)"', told)
    assert types == ["Run", "Run", "Document", "int", "Trace", "str", "int"], told
    assert 'No parameter named "stpes"' in told
    assert '"trian" is not a known attribute of module "regard"' in told


def test_mypy_sees_the_types_of_a_script(tmp_path):
    # The package is read as an installed one is: of its own files nothing is reported.
    read = {"MYPYPATH": str(Path(inspect.getfile(regard)).parents[1])}
    told = told_of_types(tmp_path, "mypy", "--cache-dir", os.devnull, "--follow-imports", "silent", **read)
    types = [name.rpartition(".")[2] for name in re.findall(r'Revealed type is "(.*)"', told)]
    assert types == ["Run", "Run", "Document", "int", "Trace", "str", "int"], told
    mistakes = re.findall(r"script.py:(\d+): error: (.*)", told)
    assert [int(line) for line, _ in mistakes] == [11, 12], told
    assert 'Unexpected keyword argument "stpes"' in mistakes[0][1]
    assert 'Module has no attribute "trian"' in mistakes[1][1]


def _path():
    return {**os.environ, "PYTHONPATH": str(Path(inspect.getfile(regard)).parents[1])}
