import errno
import io
import json
import os
import shutil
import signal
import subprocess
import threading
from functools import partial

import pytest

import regard

LONG = " ".join(["the cat sees a big red house and"] * 8)  # 64 tokens; the model reads 23


@pytest.fixture(scope="module")
def loaded(trained):
    return regard.load(trained)


def test_arguments_file_and_standard_input_agree(cli, trained, loaded, tmp_path, stdin):
    sentences = ["the cat sees", "a dog", "red house sleeps and runs"]
    (tmp_path / "in.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    wanted = "".join(f"{line}\n" for line in loaded.translate(sentences))
    assert cli("translate", trained, *sentences).out == wanted
    assert cli("translate", trained, "--input", tmp_path / "in.txt").out == wanted
    stdin("\n".join(sentences).encode())  # without a last newline
    assert cli("translate", trained).out == wanted
    result = cli("translate", trained, "-i", tmp_path / "in.txt", "-o", tmp_path / "out.txt")
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == wanted


def test_a_name_of_a_file_in_the_place_of_a_text_is_said(cli, trained, tmp_path):
    (tmp_path / "in.txt").write_text("the cat sees\n", encoding="utf-8")
    found = cli("translate", trained, tmp_path / "in.txt", tmp_path / "in.txt", "the cat " * 2000)
    assert f"'{tmp_path / 'in.txt'}' and 1 more: a name of a file is read as a text; --input FILE reads" in found.err
    assert "--input" not in cli("translate", trained, "the cat sees").err


def test_precision_is_an_option(cli, refused, trained):
    def best(*options):
        return json.loads(cli("translate", trained, "the cat sees", "--json", *options).out)["translations"][0]

    exact = best()
    assert best("--precision", "float32") == best("--precision", "auto") == exact
    for precision in ("int8", "bfloat16"):
        found = best("--precision", precision)["score"]
        assert found != exact["score"]
        assert found == pytest.approx(exact["score"], rel=0.3)
    said = refused("translate", trained, "dog", "--precision", "int4")
    assert "precision=int4 must be one of auto, float32, bfloat16, int8" in said
    assert cli("evaluate", trained, "--precision", "int8", "--limit", 2).code == 0


def test_one_line_out_for_each_line_in(cli, trained, loaded, stdin):
    lines = ["", "the cat", "   ", "\t", "dog\x0bdog\x85dog\u2028dog", "\ufefféà\u0301😀\u200d𝔘ﷺ", "a\rb", "", "dog"]
    stdin("".join(f"{line}\n" for line in lines).encode())
    out = cli("translate", trained).out
    found = out.removesuffix("\n").split("\n")
    assert len(found) == len(lines)
    assert [found[index] for index in (0, 2, 3, 7)] == [""] * 4
    assert found[1] == loaded.translate(["the cat"])[0]
    assert found[8] == loaded.translate(["dog"])[0]
    assert "\r" not in out


def test_a_line_break_that_the_model_writes_does_not_make_a_line(cli, trained, monkeypatch):
    from regard.tasks.translator import Translation, Translator

    broken = [[Translation(text="a\r\nb\nc", score=-1.0, log_prob=-1.0, tokens=(), pieces=())]]
    monkeypatch.setattr(Translator, "translate", lambda *arguments, **settings: broken)
    assert cli("translate", trained, "x").out == "a  b c\n"
    assert json.loads(cli("translate", trained, "x", "--json").out)["translations"][0]["text"] == "a\r\nb\nc"


def test_order_is_kept_over_many_windows(cli, trained, loaded, tmp_path):
    lines = [" ".join(["dog"] * (1 + index * 7 % 5)) for index in range(600)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    translation = {line: loaded.translate([line], beam=1)[0] for line in set(lines)}
    out = cli("translate", trained, "--input", tmp_path / "in.txt", "--beam", 1).out
    assert out.removesuffix("\n").split("\n") == [translation[line] for line in lines]


def test_scores_nbest_and_json(cli, trained, loaded):
    sentences = ["the cat sees", "", "a dog"]
    found = loaded.translations(sentences, top_beams=3)
    lines = cli("translate", trained, *sentences, "--top-beams", 3, "--scores").out.removesuffix("\n").split("\n")
    assert lines == [f"{one.score:.4f}\t{one.text}" for best in found for one in best]
    assert len(lines) == 9
    records = [json.loads(line) for line in cli("translate", trained, *sentences, "--json").out.splitlines()]
    assert [record["line"] for record in records] == [1, 2, 3]
    assert [record["source"] for record in records] == sentences
    for record, best in zip(records, found, strict=True):
        (one,) = record["translations"]
        assert (one["text"], one["score"], one["log_prob"]) == (best[0].text, best[0].score, best[0].log_prob)
        assert one["pieces"] == list(best[0].pieces)


@pytest.fixture(scope="module")
def endless(trained, tmp_path_factory):
    """The run with a model that never ends an output by itself, under the limits of a run from before."""
    from regard.runs.files import read_json, write_config

    folder = tmp_path_factory.mktemp("runs") / "endless"
    shutil.copytree(trained, folder)
    config = read_json(folder / "config.json")
    config["decode"] |= {
        "max_len": 20,
        "max_ratio": 1.0,
        "max_extra": 3,
        "forbid": [regard.load(trained).vocabularies.target.eos],
    }
    write_config(folder, config)
    return folder


CUT = "1 of 1 outputs were cut at their greatest length"


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ([], 7),  # three words and the end, plus three
        (["--max-len", 5], 5),
        (["--max-len", 16], 16),  # a length that is asked for is the only limit
        (["--max-len", "none"], 24),  # all that the model can write
        (["--max-len", 16, "--max-extra", 3], 7),
        (["--max-ratio", 2], 11),
        (["--max-ratio", "none"], 20),
        (["--max-extra", "none"], 20),
        (["--max-extra", 9], 13),
    ],
)
def test_a_translation_that_is_cut_says_so_and_limits_can_be_lifted(cli, endless, options, tokens):
    result = cli("translate", endless, "the cat sees", "--json", *options)
    (one,) = json.loads(result.out)["translations"]
    assert len(one["pieces"]) == tokens
    assert one["finished"] is False
    assert result.err.startswith(CUT)
    decode = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(options[::2], options[1::2], strict=True)
    }
    assert not regard.load(endless).translations(["the cat sees"], **decode)[0][0].finished


def test_of_several_outputs_those_cut_are_counted_with_what_to_do(cli, endless, trained, tmp_path):
    result = cli("translate", endless, "the cat", "", "a dog sees", "--top-beams", 2, "-o", tmp_path / "out")
    assert result.err == (
        "4 of 6 outputs were cut at their greatest length "
        "(decode.max_len=20, decode.max_ratio=1.0, decode.max_extra=3); "
        "give max_len, a number or none, to lift these limits (the model's own is model.max_len=24)\n"
    )
    result = cli("translate", endless, "the cat", "--max-len", "none")
    assert result.err == f"{CUT}, model.max_len=24, which is all that the model can write\n"
    assert cli("translate", trained, "").err == ""


def test_a_limit_that_is_no_number_or_limits_nothing_is_refused(refused, endless):
    said = refused("translate", endless, "x", "--max-ratio", "few")
    assert said == "--max-ratio=few must be a number, or none"
    assert refused("translate", endless, "x", "--max-len", "1.5") == "--max-len=1.5 must be a whole number, or none"
    assert "max_ratio=2.0 limits nothing while max_extra is none" in refused(
        "translate", endless, "x", "--max-ratio", 2, "--max-extra", "none"
    )


def test_evaluate_says_how_many_outputs_were_cut(cli, endless, corpus):
    asked = ["evaluate", endless, "--data", corpus / "valid.tsv", "--json", "--limit", 3]
    result = cli(*asked)
    assert json.loads(result.out)["cut"] == 3
    assert result.err.startswith("regard: 3 of 3 outputs were cut at their greatest length")
    assert "model.max_len=24, which is all" in cli(*asked, "--max-len", "none").err


def test_what_is_sampled_goes_by_the_line_not_by_the_batch(cli, trained, tmp_path):
    lines = [f"{'dog ' * (1 + index % 4)}cat" for index in range(300)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw = ["--temperature", 1, "--seed", 7]
    first = cli("translate", trained, "--input", tmp_path / "in.txt", *draw).out
    assert cli("translate", trained, *lines, *draw).out == first
    same = ["dog cat"] * 300
    found = cli("translate", trained, *same, *draw).out.splitlines()
    assert found[:20] != found[256:276]


def test_overlong_is_split_truncated_or_refused(cli, refused, trained, loaded, tmp_path):
    translate = ["translate", trained, "the cat", LONG]
    split = cli(*translate).out.splitlines()
    assert split == loaded.translate(["the cat", LONG])
    cut = cli(*translate, "--overlong", "truncate").out.splitlines()
    assert cut == loaded.translate(["the cat", " ".join(LONG.split()[:23])])
    assert len(split[1]) > len(cut[1])
    line = "sentence 2 has 64 tokens; the model reads at most 23"
    assert refused("translate", trained, LONG[:30], LONG, "--overlong", "refuse", "-o", tmp_path / "out") == line
    assert not list(tmp_path.iterdir())
    (tmp_path / "many.txt").write_text("the cat\n" * 299 + LONG + "\n")
    many = ["translate", trained, "-i", tmp_path / "many.txt", "-o", tmp_path / "out", "--beam", 1]
    assert refused(*many, "--overlong", "refuse") == "sentence 300 has 64 tokens; the model reads at most 23"
    assert refused(*translate, "--overlong", "spilt") == (
        "--overlong=spilt must be one of split, truncate, refuse; did you mean 'split'?"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x", "--beam", 0], "beam=0 must be at least 1"),
        (["x", "--beam", 2, "--top-beams", 3], "top_beams=3 must be from 1 to beam=2"),
        (["x", "--samples", 3], "samples=3 needs a temperature"),
        (["x", "--temperature", 0], "temperature=0.0 must be above 0"),
        (["x", "--temperature", 0.5, "--top-beams", 3], "temperature=0.5 is for sampling, top_beams=3 is for a search"),
        (["x", "--temperature", 0.5, "--beam", 2], "temperature=0.5 is for sampling, beam=2 is for a search: give one"),
        (["x", "--max-len", 0], "--max-len=0 must be at least 1"),
        (["x", "--device", "tpu"], "unknown device 'tpu'; use auto, cpu, cuda or mps"),
        (["x", "--input", "y"], "give texts or --input, not both"),
        (["--input", "nowhere.txt"], "no such file: nowhere.txt"),
        (["x", "--output", "/nowhere/out"], "cannot write /nowhere/out: No such file or directory"),
        (["x", "--output", "/"], "cannot write /: Is a directory"),
        (["x", "--output", "/dev/full"], "the disk is full: /dev/full was not written"),
    ],
)
def test_a_bad_request_is_one_line(refused, trained, arguments, said):
    assert said in refused("translate", trained, *arguments)


def test_a_run_that_is_not_there(refused, tmp_path):
    assert refused("translate", tmp_path / "none", "x") == f"no such run: {tmp_path / 'none'}"


def test_what_cannot_be_read_leaves_the_old_output(refused, trained, tmp_path, stdin):
    (tmp_path / "out").write_text("before")
    (tmp_path / "bad").write_bytes(b"the cat\nd\xff\n")
    (tmp_path / "empty").touch()
    write = ["--output", tmp_path / "out"]
    assert "bad is not UTF-8 text: byte 9, on line 2" in refused("translate", trained, "-i", tmp_path / "bad", *write)
    assert "empty is empty" in refused("translate", trained, "-i", tmp_path / "empty", *write)
    assert "is not a file" in refused("translate", trained, "-i", tmp_path, *write)
    stdin(b"the cat\nd\xff\n")
    assert refused("translate", trained, *write) == "standard input is not UTF-8 text: byte 1 of line 2"
    assert (tmp_path / "out").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad", "empty", "out"]


def test_a_full_disk_leaves_the_old_output(refused, trained, tmp_path, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "out").write_text("before")
    monkeypatch.setattr("regard.runs.files.sync", full)
    line = refused("translate", trained, "the cat", "-o", tmp_path / "out")
    assert line == f"the disk is full: {tmp_path / 'out'} was not written"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out", "before")]


def test_a_link_is_followed_and_a_device_stays_one(cli, trained, tmp_path):
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert cli("translate", trained, "the cat", "-o", tmp_path / "link").code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text().endswith("\n")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert cli("translate", trained, "the cat", "-o", tmp_path / "pipe").code == 0
    assert os.read(reader, 1000).decode() == (tmp_path / "real").read_text()
    os.close(reader)


def test_a_full_standard_output_is_one_line(trained, monkeypatch, capsys):
    from regard.cli import main

    class Full(io.StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def fileno(self):
            raise OSError

    monkeypatch.setattr("sys.stdout", Full())
    assert main(["translate", str(trained), "x"]) == 2
    assert capsys.readouterr().err == "regard: standard output: No space left on device\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_pipe_is_answered_line_by_line_and_ends_quietly(python, trained, loaded, tmp_path, number):
    command = [python, "-m", "regard", "translate", str(trained), *(["-o", str(tmp_path / "out")] * (number == 15))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # A job in the background is born deaf to SIGINT, and so are its children.
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, **pipes, preexec_fn=hears) as process:
        process.stdin.write(b"the cat\n")
        process.stdin.flush()
        if number == signal.SIGINT:
            # The second line is not sent before the first is answered.
            assert process.stdout.readline().decode() == loaded.translate(["the cat"])[0] + "\n"
            process.stdin.write(b"a dog\n")
            process.stdin.flush()
            assert process.stdout.readline().decode() == loaded.translate(["a dog"])[0] + "\n"
        else:
            while not any(path.stat().st_size for path in tmp_path.iterdir()):
                assert process.poll() is None
        process.send_signal(number)
        assert process.wait() == 130
        assert process.stdout.read() == b""
        assert process.stderr.read() == b""
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_a_lock_is_let_go_ends_quietly_too(cli, trained, monkeypatch):
    def take(self, *, wait=True):
        lock = threading.Lock()
        with lock:
            lock.release()  # as a queue does while it waits
            raise KeyboardInterrupt

    monkeypatch.setattr("regard.cli.verbs.Available.take", take)
    result = cli("translate", trained, "the cat")
    assert (result.code, result.out, result.err) == (130, "", "")


def test_look_writes_one_page(cli, refused, trained, tmp_path):
    page = tmp_path / "x.html"
    result = cli("look", trained, "the cat sees", "--out", page)
    assert (result.code, result.out) == (0, f"{page}\n")
    text = page.read_text(encoding="utf-8")
    assert "cross_attention" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    (tmp_path / "in.txt").write_text("the cat\n\na dog\n")
    assert cli("look", trained, "--input", tmp_path / "in.txt", "--out", page).code == 0
    page.unlink()
    assert "every sentence is blank" in refused("look", trained, " ", "--out", page)
    assert "give sentences, or --input" in refused("look", trained, "--out", page)
    assert "sentence 1 has 64 tokens; the model reads at most 23" in refused("look", trained, LONG, "--out", page)
    assert "cannot write" in refused("look", trained, "the cat", "--out", tmp_path / "none" / "x.html")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_look_serves_papers_and_scripts_without_a_browser(cli, refused, trained, loaded, tmp_path):
    json_file, svg, png = (tmp_path / f"x.{kind}" for kind in ("json", "svg", "png"))
    asked = ("look", trained, "the cat sees", "--layers", "decoder.*", "--heads", "1", "--beam", "2")
    result = cli(*asked, "--json", json_file, "--svg", svg, "--png", png, "--edits")
    assert (result.code, result.out) == (0, f"{json_file}\n{svg}\n{png}\n")
    sentence = json.loads(json_file.read_text())["sentences"][0]
    assert [one["name"] for one in sentence["attentions"]] == ["decoder.0.attention", "decoder.0.cross_attention"]
    assert all(one["heads"] == [1] and len(one["weights"]) == 1 for one in sentence["attentions"])
    assert sum(sentence["attentions"][1]["weights"][0][0]) == pytest.approx(1, abs=1e-4)
    assert sentence["target"]["text"] == loaded.translate(["the cat sees"], beam=2)[0]
    assert [one["edit"] for one in sentence["edited"]] == ["masked", "masked", "even", "even"]
    assert svg.read_text().startswith("<svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert cli("look", trained, "the cat", "--target", "CAT THE", "--training", "--json", json_file).code == 0
    found = json.loads(json_file.read_text())
    assert found["sentences"][0]["target"]["text"] == "CAT THE"
    assert found["history"]["steps"] == [3, 6]
    for path in (json_file, svg, png):
        path.unlink()
    assert "must be numbers with commas" in refused("look", trained, "the cat", "--heads", "1-2", "--svg", svg)
    for option in (["--view", "lines"], ["--words"]):
        assert "say what --svg and --png plot" in refused("look", trained, "the cat", *option)
    assert "view='lins' must be one of" in refused("look", trained, "the cat", "--view", "lins", "--svg", svg)
    assert "plot one sentence, not 2" in refused("look", trained, "the cat", "a dog", "--svg", svg)
    assert "2 targets for 1 sentences" in refused("look", trained, "a", "--target", "A", "--target", "B", "--svg", svg)
    assert "no attention is called" in refused("look", trained, "the cat", "--layers", "none", "--svg", svg)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["look", "RUN", "the cat", "--out"],
        ["look", "RUN", "the cat", "--json"],
        ["look", "RUN", "the cat", "--svg"],
        ["look", "RUN", "the cat", "--png"],
        ["look", "--gradients", "RUN", "the cat sees", "--out"],
        ["heads", "RUN", "--out"],
        ["prune", "RUN", "--heads", "1", "--out", "NEW", "--curve"],
        ["evaluate", "RUN", "--out"],
        ["translate", "RUN", "the cat", "--output"],
        ["embed-text", "RUN", "the cat", "--out"],
        ["vectors", "train", "TEXT", "--out"],
    ],
)
def test_no_command_writes_onto_a_run_or_computes_before_it_looks_where_it_writes(
    refused, trained, corpus, tmp_path, monkeypatch, command
):
    places = {"RUN": trained, "NEW": tmp_path / "new", "TEXT": corpus / "train.en"}
    asked = [places.get(word, word) for word in command]
    before = {path: path.read_bytes() for path in trained.iterdir() if path.is_file()}

    def computing(*arguments, **options):
        raise AssertionError("nothing should be loaded for this")

    for place in (
        "regard.tasks.run.load",
        "regard.analysis.gradients.gradients",
        "regard.trainer.initialize.train_vectors",
    ):
        monkeypatch.setattr(place, computing)
    if command[0] == "embed-text":
        assert "config.json.npy" in refused(*asked, tmp_path / "none" / "config.json.npy")
        (tmp_path / "a.npy").mkdir()
        assert "Is a directory" in refused(*asked, tmp_path / "a.npy")
        return
    assert "is part of the run in" in refused(*asked, trained / "model.safetensors")
    assert "Is a directory" in refused(*asked, tmp_path)
    page = "x.html" if command[0] == "look" else "x.json"
    name = {"--svg": "x.svg", "--png": "x.png", "--json": "x.json"}.get(command[-1], page)
    assert "No such file" in refused(*asked, tmp_path / "none" / name)
    assert "'--words' is an option" in refused(*asked, "--words")
    assert {path: path.read_bytes() for path in trained.iterdir() if path.is_file()} == before


def test_a_tokenizer_of_sacrebleu_is_checked_before_anything_is_loaded(refused, tmp_path):
    assert "tokenize='13b' must be one of" in refused("evaluate", tmp_path / "none", "--tokenize", "13b")


def test_words_that_a_run_does_not_know_are_named_once(cli, trained, tmp_path, corpus):
    result = cli("translate", trained, "the cat sees a zebra and a quagga", "the zebra sees")
    assert len(result.out.splitlines()) == 2
    assert "unknown to this run, and all read as one word: zebra, quagga; a run with tokenizer.kind=bpe" in result.err
    assert "unknown" not in cli("translate", trained, "the cat sees").err
    said = json.loads(cli("translate", trained, "the zebra", "--json").out)
    assert said["unknown"] == ["zebra"]
    assert "unknown" not in json.loads(cli("translate", trained, "the cat", "--json").out)
