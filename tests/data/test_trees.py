"""Bracketed files to trees, trees to symbols and back, and what cannot be read refused by file and line."""

import pytest

from regard.cli import main
from regard.data.trees import (
    as_read,
    bare_label,
    cleaned,
    escaped,
    grammar_trees,
    linearised,
    most_brackets,
    read_cleaned,
    read_trees,
    symbols_of,
    tree_from,
    tree_of,
)
from regard.errors import DataError

TREEBANK = """
( (S
    (NP-SBJ-1 (DT The) (NN dog) )
    (VP (VBZ seems)
      (S (NP-SBJ (-NONE- *-1) )
        (VP (TO to) (VP (VB sleep) ))))
    (. .) ))

( (NP (-LRB- -LRB-) (NN x) (-RRB- -RRB-)) ) ( (UH Yes) )
(TOP (S (NN a)) (S (NN b)))
(ROOT (-NONE- 0))
"""


def numbers(labels):
    return {label: number for number, label in enumerate(labels, 2)}


def test_trees_over_lines_and_several_on_one_are_read_and_cleaned(tmp_path):
    path = tmp_path / "some.mrg"
    path.write_text(TREEBANK, encoding="utf-8")
    assert len(list(read_trees(path))) == 5
    assert [str(tree) for tree in read_cleaned([path])] == [
        "(S (NP (DT The) (NN dog)) (VP (VBZ seems) (S (VP (TO to) (VP (VB sleep))))) (. .))",
        "(NP (-LRB- -LRB-) (NN x) (-RRB- -RRB-))",
        "(TOP (UH Yes))",
        "(TOP (S (NN a)) (S (NN b)))",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(S (NN a))\n(S (NN b)\n(S (NN c))\n", "line 2: the tree that begins here is not closed.*begin at line 3"),
        ("(S (NN a))\n\n(S (NN b)))\n", "line 3: a bracket closes that was never opened"),
        ("(S (NN a)) word\n", "line 1: 'word' stands outside of any tree"),
        ("(S (NN a b))\n", "line 1: 'b' must stand in brackets of its own"),
        ("(S (NP the (NN dog)))\n", "line 1: a bracket opens after the word 'the'"),
        ("(S (NN ))\n", "line 1: a bracket with nothing in it"),
        ("(" * 300, "line 1: more than 250 brackets"),
        ("\n\n", "has no tree"),
        ("( (-NONE- *) )", "no tree of these files has a word"),
    ],
)
def test_what_is_no_tree_is_refused_by_file_and_line(text, said, tmp_path):
    path = tmp_path / "bad.mrg"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        read_cleaned([path])


def test_labels_lose_their_functions_and_words_their_escapes():
    assert [bare_label(one) for one in ("NP-SBJ-1", "NP=2", "-LRB-", "-NONE-", "ADVP|PRT", "S")] == [
        *("NP", "NP", "-LRB-", "-NONE-", "ADVP|PRT", "S"),
    ]
    assert escaped("(") == "-LRB-"
    assert as_read("-LRB-") == "("
    assert as_read("1\\/2") == "1/2"
    assert escaped("f(x)") == "f-LRB-x-RRB-"


@pytest.mark.parametrize("terminals", ["tags", "XX"])
def test_a_tree_is_its_symbols_and_back(terminals):
    trees = list(grammar_trees(60, seed=2, split="train"))
    labels = symbols_of(trees, terminals)
    assert ("XX" in labels) == (terminals == "XX")
    for tree in trees:
        row = linearised(tree, numbers(labels))
        back = tree_from(row, labels, tree.words)
        assert back.words == tree.words
        assert [one for one in str(back).split() if one[0] == "("] or terminals == "XX"
        assert (back == tree) == (terminals == "tags")
        assert linearised(back, numbers(labels)) == row
        assert cleaned(tree) == tree


def test_depth_and_brackets_between_two_words_are_counted_and_unknown_labels_named():
    tree = tree_of("(S (NP (NP (NN a)) (NN b)) (VP (VB c)))")
    labels = symbols_of([tree], "tags")
    assert most_brackets(linearised(tree, numbers(labels)), labels) == (3, 3)
    assert linearised(tree_of("(S (QP (NN a)))"), numbers(labels)) == "QP"
    assert linearised(tree_of("(S (JJ a))"), numbers(labels)) == "JJ"


def test_the_command_writes_trees_of_the_grammar_and_of_files_in_their_order(tmp_path, capsys):
    own = tmp_path / "own"
    assert main(["data", "trees", str(own), "--train", "6", "--valid", "2", "--test", "2"]) == 0
    assert len(read_cleaned([own / "train.trees"])) == 6
    assert {*map(str, read_cleaned([own / "train.trees"]))}.isdisjoint(map(str, read_cleaned([own / "test.trees"])))
    path = tmp_path / "bank.mrg"
    path.write_text("".join(f"( (S (NN w{number}) (-NONE- *)) )\n" for number in range(9)), encoding="utf-8")
    out = ["data", "trees", str(tmp_path / "bank"), "--from", str(path), "--valid", "2", "--test", "3"]
    assert main(out) == 0
    parts = {part: read_cleaned([tmp_path / "bank" / f"{part}.trees"]) for part in ("train", "valid", "test")}
    assert [len(one) for one in parts.values()] == [4, 2, 3]
    assert [tree.words[0] for part in parts.values() for tree in part] == [f"w{number}" for number in range(9)]
    capsys.readouterr()
    assert main([*out, "--train", "9"]) != 0
    assert "9 trees are too few" in capsys.readouterr().err
