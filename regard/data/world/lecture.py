"""The lectures' own sentences, said by the same grammar as all the others."""

from regard.data.world.adjectives import adjective
from regard.data.world.nouns import noun, trade
from regard.data.world.phrases import (
    Action,
    Adjunct,
    Clause,
    Date,
    Profession,
    Stand,
    State,
    Statement,
    Suffering,
    Thanks,
    Thing,
)
from regard.data.world.sentence import Sentence, say
from regard.data.world.verbs import verb


def _crossing(state: str, antecedent: str) -> Statement:
    """An animal that didn't cross, because one of the two nouns was too much of something."""
    animal, street = Thing(noun("animal")), Thing(noun("street"))
    reason = Clause(Stand("it", {"animal": animal, "street": street}[antecedent]), (State((adjective(state),), "too"),))
    return Statement((Clause(animal, (Action(verb("cross"), street, denial="not"),), "because", reason),))


def _agreement() -> Statement:
    area = Thing(noun("Area"), adjectives=(adjective("European"), adjective("Economic")))
    agreement = Thing(noun("agreement"), adjunct=Adjunct("on", area))
    signed = Suffering(verb("sign"), circumstances=(Date(month="August", year="1992"),))
    return Statement((Clause(agreement, (signed,)),))


LECTURE: tuple[Sentence, ...] = tuple(
    say(statement)
    for statement in (
        _crossing("tired", "animal"),
        _crossing("wide", "street"),
        _agreement(),
        Statement((Clause(Stand("I"), (Profession(trade("student")),)),)),
        Statement((), thanks=Thanks()),
    )
)
