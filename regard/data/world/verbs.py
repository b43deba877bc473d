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
    french_preposition: str
    with_etre: bool
    state: bool
    subjects: tuple[str, ...]
    objects: tuple[str, ...]

    @property
    def imperfect(self) -> str:
        """What the endings of the imperfect are added to."""
        return self.french_plural[:-3]


PEOPLE = ("person", "worker")
LIVING = (*PEOPLE, "animal")
THINGS = ("thing", "container")
PAPERS = ("accord", "text")

# Who, to what, then "english:french" where the English is "base[+preposition]" or "base/past/participle[+preposition]"
# and the French an infinitive in -er or "singular/plural/participle", [+preposition].
_EVENTS = (
    (LIVING, ("way",), "cross:traverser, avoid:éviter, explore:explorer, reach:atteint/atteignent/atteint"),
    (LIVING, ("building",), "avoid:éviter, leave/left/left:quitter, find/found/found:trouver, look+for:chercher"),
    (PEOPLE, ("building",), "visit:visiter, clean:nettoie/nettoient/nettoyé, paint:peint/peignent/peint"),
    (LIVING, ("food",), "eat/ate/eaten:manger, swallow:avaler, taste:goûter, refuse:refuser, steal/stole/stolen:voler"),
    (PEOPLE, ("food",), "cook:cuisiner, choose/chose/chosen:choisit/choisissent/choisi, finish:finit/finissent/fini"),
    (LIVING, THINGS, "pull:tirer, push:pousser, carry:porter, lift:soulève/soulèvent/soulevé, hide/hid/hidden:cacher"),
    (
        PEOPLE,
        THINGS,
        "buy/bought/bought:achète/achètent/acheté, sell/sold/sold:vend/vendent/vendu, repair:réparer, "
        "lose/lost/lost:perd/perdent/perdu, bring/brought/brought:apporter",
    ),
    (PEOPLE, ("accord",), "sign:signer, reject:rejette/rejettent/rejeté, accept:accepter, discuss:discuter+de"),
    (
        PEOPLE,
        PAPERS,
        "write/wrote/written:écrit/écrivent/écrit, publish:publier, translate:traduit/traduisent/traduit, "
        "study:étudier, send/sent/sent:envoie/envoient/envoyé, forget/forgot/forgotten:oublier",
    ),
    (
        LIVING,
        LIVING,
        "see/saw/seen:voit/voient/vu, follow:suit/suivent/suivi, look+at:regarder, listen+to:écouter, "
        "wait+for:attend/attendent/attendu, hear/heard/heard:entend/entendent/entendu, play+with:jouer+avec",
    ),
    (
        PEOPLE,
        PEOPLE,
        "help:aider, meet/met/met:rencontrer, thank:remercier, invite:inviter, talk+to:parler+à, "
        "answer:répond/répondent/répondu+à",
    ),
    (
        LIVING,
        (),
        "sleep/slept/slept:dort/dorment/dormi, run/ran/run:court/courent/couru, swim/swam/swum:nager, "
        "walk:marcher, wait:attend/attendent/attendu",
    ),
    (
        PEOPLE,
        (),
        "work:travailler, sing/sang/sung:chanter, dance:danser, laugh:rit/rient/ri, smile:sourit/sourient/souri",
    ),
)
_EVENTS_WITH_ETRE = (
    (
        LIVING,
        ("building",),
        "go/went/gone+to:va/vont/allé+à, arrive+at:arriver+à, return+to:retourner+à, enter:entrer+dans",
    ),
    (PEOPLE, ("locality",), "go/went/gone+to:va/vont/allé+à, return+to:retourner+à"),
    (LIVING, (), "arrive:arriver, fall/fell/fallen:tomber, stay:rester"),
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
_FITS = (((), (), "fit/fit/fit+in:tient/tiennent/tenu+dans"),)

Table = tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...]


def _verb(entry: str, subjects: tuple[str, ...], objects: tuple[str, ...], with_etre: bool, state: bool) -> Verb:
    english, _, french = entry.partition(":")
    english, _, preposition = english.partition("+")
    french, _, french_preposition = french.partition("+")
    base, *irregular = english.split("/")
    past, participle = irregular or (english_ed(base), english_ed(base))
    stem = french.removesuffix("er")
    singular, plural, passe = french.split("/") if "/" in french else (stem + "e", stem + "ent", stem + "é")
    return Verb(
        base=base,
        third=english_s(base),
        past=past,
        participle=participle,
        preposition=preposition,
        french_singular=singular,
        french_plural=plural,
        french_participle=passe,
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
RECALLED = PASSIVE + tuple(
    v for v in VERBS if v.objects and (v.base in ("see", "meet", "help") or (v.state and not v.preposition))
)


def verb(base: str, french: str = "") -> Verb:
    """The verb whose English is `base`; where several are, the one whose French participle is `french`."""
    return next(v for v in (*VERBS, *REPORTS, FIT) if v.base == base and french in ("", v.french_participle))
