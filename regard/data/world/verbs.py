"""The verbs of the world: their forms, the preposition each takes, who does them and to what."""

from dataclasses import dataclass

from regard.data.world.morphology import english_ed, english_s


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb in both languages. A state keeps the imperfect in the French past; an event takes the compound past."""

    base: str
    third: str
    past: str
    participle: str
    preposition: str
    french_singular: str
    french_plural: str
    french_participle: str
    imperfect: str
    french_preposition: str
    with_etre: bool
    state: bool
    subjects: tuple[str, ...]
    objects: tuple[str, ...]


PEOPLE = ("person", "worker")
LIVING = (*PEOPLE, "animal")
THINGS = ("thing", "container")
PAPERS = ("accord", "text")

# Who, to what, then "english:french": the English is "base[+preposition]" or "base/past/participle[+preposition]", the
# French an infinitive in -er or "singular/plural/participle[/stem of the imperfect]", then [+preposition].
_EVENTS = (
    (LIVING, ("way",), "cross:traverser, avoid:éviter, explore:explorer, reach:atteint/atteignent/atteint"),
    (LIVING, ("building",), "avoid:éviter, leave/left/left:quitter, find/found/found:trouver, look+for:chercher"),
    (PEOPLE, ("building",), "clean:nettoie/nettoient/nettoyé, paint:peint/peignent/peint"),
    (LIVING, ("food",), "eat/ate/eaten:manger, swallow:avaler, refuse:refuser, steal/stole/stolen:voler"),
    (PEOPLE, ("food",), "finish:finit/finissent/fini, choose/chose/chosen:choisit/choisissent/choisi"),
    (LIVING, THINGS, "pull:tirer, push:pousser, carry:porter, lift:soulève/soulèvent/soulevé, hide/hid/hidden:cacher"),
    (
        PEOPLE,
        THINGS,
        "buy/bought/bought:achète/achètent/acheté, sell/sold/sold:vend/vendent/vendu, repair:réparer, "
        "lose/lost/lost:perd/perdent/perdu",
    ),
    (PEOPLE, ("accord",), "sign:signer, reject:rejette/rejettent/rejeté, accept:accepter, discuss:discuter+de"),
    (
        PEOPLE,
        PAPERS,
        "write/wrote/written:écrit/écrivent/écrit, publish:publier, translate:traduit/traduisent/traduit, "
        "forget/forgot/forgotten:oublier",
    ),
    (
        LIVING,
        LIVING,
        "see/saw/seen:voit/voient/vu, follow:suit/suivent/suivi, look+at:regarder, listen+to:écouter, "
        "wait+for:attend/attendent/attendu, play+with:jouer+avec",
    ),
    (PEOPLE, PEOPLE, "help:aider, meet/met/met:rencontrer, talk+to:parler+à, answer:répond/répondent/répondu+à"),
    (LIVING, (), "sleep/slept/slept:dort/dorment/dormi, run/ran/run:court/courent/couru"),
    (PEOPLE, (), "work:travailler, sing/sang/sung:chanter, dance:danser"),
)
_EVENTS_WITH_ETRE = (
    (LIVING, ("building",), "go/went/gone+to:va/vont/allé+à, arrive+at:arriver+à, enter:entrer+dans"),
    (PEOPLE, ("locality",), "go/went/gone+to:va/vont/allé+à"),
    (LIVING, (), "arrive:arriver, fall/fell/fallen:tomber"),
)
_STATES = (
    (
        PEOPLE,
        (*LIVING, "way", "building"),
        "love:aimer, hate:détester, know/knew/known:connaît/connaissent/connu, admire:admirer",
    ),
    (PEOPLE, ("locality",), "live+in:habiter+à"),
    (LIVING, LIVING, "fear:craint/craignent/craint"),
)
# What someone says or thinks: followed by "that" and a clause.
_REPORTS = (
    (
        PEOPLE,
        (),
        "say/said/said:dit/disent/dit, know/knew/known:sait/savent/su, think/thought/thought:penser, "
        "believe:croit/croient/cru",
    ),
)
# Only ever denied, so that its one English form never has to tell the past from the present.
_FITS = (((), (), "fit/fit/fit+in:tient/tiennent/tenu/ten+dans"),)

Table = tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]


def _verb(entry: str, subjects: tuple[str, ...], objects: tuple[str, ...], with_etre: bool, state: bool) -> Verb:
    english, _, french = entry.partition(":")
    english, _, preposition = english.partition("+")
    french, _, french_preposition = french.partition("+")
    base, *irregular = english.split("/")
    past, participle = irregular or (english_ed(base), english_ed(base))
    stem = french.removesuffix("er")
    forms = french.split("/") if "/" in french else (stem + "e", stem + "ent", stem + "é")
    return Verb(
        base=base,
        third=english_s(base),
        past=past,
        participle=participle,
        preposition=preposition,
        french_singular=forms[0],
        french_plural=forms[1],
        french_participle=forms[2],
        imperfect=forms[3] if len(forms) > 3 else forms[1].removesuffix("ent"),
        french_preposition=french_preposition,
        with_etre=with_etre,
        state=state,
        subjects=subjects,
        objects=objects,
    )


def _verbs(table: Table, with_etre: bool = False, state: bool = False) -> tuple[Verb, ...]:
    return tuple(
        _verb(entry, subjects, objects, with_etre, state)
        for subjects, objects, entries in table
        for entry in entries.split(", ")
    )


VERBS = _verbs(_EVENTS) + _verbs(_EVENTS_WITH_ETRE, with_etre=True) + _verbs(_STATES, state=True)
REPORTS = _verbs(_REPORTS)
FIT = _verbs(_FITS, state=True)[0]
# What a paper, a house or a thing can suffer in the passive.
PASSIVE = tuple(
    verb
    for verb in VERBS
    if verb.base
    in ("sign", "reject", "accept", "write", "publish", "translate", "paint", "clean", "buy", "sell", "repair", "steal")
)
# What a relative clause can say that someone did to the noun before it.
RECALLED = PASSIVE + tuple(v for v in VERBS if v.objects and (v.base == "see" or (v.state and not v.preposition)))


def verb(base: str, french: str = "") -> Verb:
    """The verb whose English is `base`; where several are, the one whose French participle is `french`."""
    return next(v for v in (*VERBS, *REPORTS, FIT) if v.base == base and french in ("", v.french_participle))
