"""Commands mean what an interpreter of their own makes of them, and are in one part each."""

import pytest

from regard.data.synthetic.commands import LONGEST, TIMES, TURNS, VERBS, commands


class Interpreter:
    """Reads a command from left to right, word by word."""

    def __init__(self, command: str) -> None:
        self.words = command.split()

    def next(self, *wanted: str) -> str | None:
        return self.words.pop(0) if self.words and (not wanted or self.words[0] in wanted) else None

    def sequence(self) -> list[str]:
        done = self.phrase()
        while how := self.next("then", "after"):
            other = self.phrase()
            done = done + other if how == "then" else other + done
        return done

    def phrase(self) -> list[str]:
        if self.next("begin"):
            done = self.sequence()
            assert self.next("end")
        else:
            done = self.action()
        done = done * TIMES.get(self.next(*TIMES) or "", 1)
        if self.next("and"):
            assert self.next("back")
            done = done + done[::-1]
        return done

    def action(self) -> list[str]:
        verb = VERBS[self.next() or ""]
        if self.next("zigzag"):
            return ["LEFT", verb, "RIGHT", verb]
        often = 4 if self.next("round") else 1
        return [*TURNS.get(self.next(*TURNS) or "", ()), verb] * often


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_command_means_what_it_says(mirrored):
    drawn = list(commands({"train": 1500, "valid": 50}, seed=3, mirrored=mirrored))
    for _, command, actions in drawn:
        reader = Interpreter(command)
        assert " ".join(reader.sequence()) == actions
        assert not reader.words
    assert len({command for _, command, _ in drawn}) == len(drawn) == 1550
    assert max(len(actions.split()) for *_, actions in drawn) <= LONGEST
    assert any("and back" in command for _, command, _ in drawn) == mirrored
    assert any("begin" in command.partition("begin")[2].partition("end")[0] for _, command, _ in drawn)
