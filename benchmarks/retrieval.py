"""A handbook of over a thousand passages that nobody wrote, and questions whose answers are known.

Every passage is about one thing (of 96) and one matter (of 11), and stands among ten others about the same thing
and 95 about the same matter, in much the same words. Questions are of three families:

  paraphrase   thing and matter in other words than the passage has: for vectors
  identifier   a document's number, one among many that look like it, and cited by others: for words
  mixed        the matter in other words, the thing in the passage's own, and the hall that a dozen passages share

The corpus is made before anything is measured, by a seed, and is not fitted to what is measured.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SEED = 20_240_607

# Each thing as passages call it, and as questions do.
THINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "kitchen": (
        ("espresso machine", "coffee maker"),
        ("walk-in freezer", "cold room for frozen food"),
        ("dough mixer", "appliance that kneads bread"),
        ("deep fryer", "vat of hot oil for chips"),
        ("dishwasher", "appliance that washes plates"),
        ("pizza oven", "furnace for flatbreads"),
        ("meat slicer", "cutter for ham and sausage"),
        ("ice machine", "maker of frozen cubes"),
    ),
    "farm": (
        ("milking robot", "automatic device for dairy cows"),
        ("grain silo", "tower where wheat is kept"),
        ("tractor", "vehicle that pulls the plough"),
        ("beehive", "home of the swarm that makes honey"),
        ("irrigation pump", "motor that waters the fields"),
        ("hen house", "shelter for laying chickens"),
        ("combine harvester", "vehicle that reaps cereals"),
        ("greenhouse", "glass building for seedlings"),
    ),
    "ship": (
        ("anchor winch", "device that lifts the hook from the sea bed"),
        ("lifeboat", "small craft for abandoning the vessel"),
        ("rudder", "blade that steers the vessel"),
        ("bilge pump", "device that empties water from the hull"),
        ("radar", "instrument that sees other vessels in fog"),
        ("mainsail", "largest canvas on the mast"),
        ("galley stove", "cooker on board"),
        ("propeller shaft", "axle that drives the vessel forward"),
    ),
    "hospital": (
        ("ventilator", "apparatus that breathes for a patient"),
        ("X-ray unit", "apparatus that pictures bones"),
        ("infusion pump", "apparatus that drips medicine into a vein"),
        ("operating table", "bed on which surgeons work"),
        ("incubator", "warm cot for premature babies"),
        ("defibrillator", "apparatus that restarts a heart"),
        ("wheelchair", "seat on castors for those who cannot walk"),
        ("autoclave", "steam vessel that sterilises instruments"),
    ),
    "office": (
        ("laser printer", "device that puts documents on paper"),
        ("paper shredder", "device that destroys confidential pages"),
        ("telephone exchange", "equipment that connects callers"),
        ("projector", "device that throws slides on a wall"),
        ("filing cabinet", "steel furniture for folders"),
        ("coffee corner", "place where staff take a break"),
        ("conference table", "furniture around which meetings are held"),
        ("server rack", "cupboard with the computers"),
    ),
    "railway": (
        ("signal box", "building from which trains are directed"),
        ("level crossing", "place where cars go over the tracks"),
        ("locomotive", "engine that pulls carriages"),
        ("track switch", "movable rails that let trains change lines"),
        ("overhead wire", "cable that feeds electric trains"),
        ("ticket gate", "barrier that checks passengers' fares"),
        ("freight wagon", "carriage for cargo"),
        ("station clock", "timepiece on the platform"),
    ),
    "museum": (
        ("oil painting", "old picture on canvas"),
        ("display case", "glass box around an exhibit"),
        ("dinosaur skeleton", "bones of an extinct reptile"),
        ("audio guide", "device that explains exhibits to visitors' ears"),
        ("marble statue", "figure carved from stone"),
        ("tapestry", "woven picture on the wall"),
        ("cloakroom", "place where visitors leave coats"),
        ("mummy", "embalmed body from Egypt"),
    ),
    "waterworks": (
        ("sand filter", "bed of grains that clears water"),
        ("chlorine doser", "device that disinfects water"),
        ("water tower", "high tank that gives pressure"),
        ("sluice gate", "door that holds back a river"),
        ("flow meter", "instrument that measures how much passes"),
        ("settling basin", "pool in which mud sinks"),
        ("hydrant", "tap in the street for firefighters"),
        ("sewer tunnel", "underground passage for waste water"),
    ),
    "theatre": (
        ("stage curtain", "large cloth that hides the scene"),
        ("spotlight", "lamp that follows an actor"),
        ("trapdoor", "opening in the floor for sudden entrances"),
        ("grand piano", "large instrument with keys"),
        ("wig workshop", "room where false hair is made"),
        ("orchestra pit", "sunken place for musicians"),
        ("fog generator", "device that makes artificial mist"),
        ("costume store", "room full of clothes for plays"),
    ),
    "airport": (
        ("baggage belt", "conveyor for suitcases"),
        ("fuel truck", "vehicle that fills up planes"),
        ("control tower", "high room from which planes are guided"),
        ("jet bridge", "covered walkway to a plane"),
        ("de-icing rig", "equipment that frees wings from frost"),
        ("runway light", "lamp that shows pilots where to land"),
        ("body scanner", "equipment that searches passengers"),
        ("snow plough", "vehicle that clears winter roads"),
    ),
    "laboratory": (
        ("centrifuge", "spinning device that separates liquids"),
        ("fume hood", "cabinet that draws off vapours"),
        ("microscope", "instrument for looking at tiny things"),
        ("analytical balance", "very precise scales"),
        ("gas cylinder", "steel bottle under pressure"),
        ("glove box", "sealed chamber with sleeves for hands"),
        ("mass spectrometer", "instrument that weighs molecules"),
        ("acid cupboard", "place where corrosive liquids are kept"),
    ),
    "school": (
        ("climbing wall", "vertical surface with holds for sport"),
        ("chemistry kit", "set for experiments by pupils"),
        ("school bus", "vehicle that brings children"),
        ("blackboard", "dark surface for writing with chalk"),
        ("swimming pool", "basin in which children learn to stay afloat"),
        ("playground swing", "seat on chains that moves to and fro"),
        ("bell", "sound that ends a lesson"),
        ("canteen", "room in which pupils have lunch"),
    ),
}

# Each matter as passages put it, and as questions do.
MATTERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cleaning": (
        ("The {thing} is scrubbed with warm soapy water every {n} days and left to dry in the open.",),
        ("How often does somebody wash the {thing}?", "By what is dirt removed from the {thing}?"),
    ),
    "frost": (
        ("Below minus {n} degrees the {thing} is covered with blankets and a small heater is switched on.",),
        ("What is done for the {thing} in a cold winter?", "How is the {thing} kept from freezing?"),
    ),
    "training": (
        ("Newcomers may use the {thing} alone after {n} supervised lessons and a short written test.",),
        (
            "When is a beginner allowed to handle the {thing}?",
            "How do new staff learn to deal with the {thing}?",
        ),
    ),
    "cost": (
        ("The {thing} was bought for {n},400 euros and is written off over nine years.",),
        ("What was the price of the {thing}?", "How much money did we spend to get the {thing}?"),
    ),
    "failure": (
        ("If the {thing} stops without warning, first pull the red lever, then call extension {n}.",),
        ("Whom do I ring when the {thing} breaks down?", "What should I do if the {thing} suddenly quits?"),
    ),
    "inspection": (
        ("An outside engineer examines the {thing} each spring and signs a list of {n} points.",),
        (
            "Who checks once a year that the {thing} is safe?",
            "How is the yearly examination of the {thing} done?",
        ),
    ),
    "noise": (
        ("Whoever stands within {n} metres of the {thing} wears ear protection.",),
        ("Is the {thing} too loud for my hearing?", "Where do I need ear plugs because of the {thing}?"),
    ),
    "fire": (
        ("Near the {thing} hangs a foam extinguisher, and smoking is forbidden for {n} steps around.",),
        (
            "What is at hand if flames break out at the {thing}?",
            "May I light a cigarette beside the {thing}?",
        ),
    ),
    "lending": (
        ("Neighbours may borrow the {thing} for {n} hours against a deposit and their passport.",),
        (
            "Can people from outside rent the {thing}?",
            "On what terms is the {thing} given to others for a while?",
        ),
    ),
    "disposal": (
        ("When the {thing} is past repair it goes to the scrap dealer, who pays {n} cents a kilo.",),
        (
            "What happens to the {thing} at the end of its life?",
            "Who takes away the {thing} once it is junk?",
        ),
    ),
    "keys": (
        ("The {thing} is locked at night, and its {n} keys hang in the porter's glass box.",),
        (
            "Who can open the {thing} after hours?",
            "How is the {thing} secured against theft when all have gone?",
        ),
    ),
}

FILLERS = (
    "Notes on the {other} are kept apart from this.",
    "This page was revised together with that of the {other}.",
    "Whoever is unsure asks the foreman before touching anything.",
    "The same holds on public holidays.",
    "A copy hangs in hall {hall}.",
    "Earlier rules about the {other} no longer apply.",
    "Deviations are entered in the log in hall {hall}.",
    "Questions go to the desk in hall {hall}, which also looks after the {other}.",
)
IDENTIFIER_QUESTIONS = (
    "What does document {code} say?",
    "Which rule is number {code}?",
    "{code}",
    "Please summarise {code} for me.",
)
FAMILIES = ("paraphrase", "identifier", "mixed")


@dataclass(frozen=True, slots=True)
class Page:
    id: str
    source: str
    heading: str
    text: str
    thing: int
    matter: str
    hall: str
    code: str


@dataclass(frozen=True, slots=True)
class Asked:
    family: str
    query: str
    answer: str  # the page's id


@dataclass(frozen=True, slots=True)
class Handbook:
    pages: tuple[Page, ...]
    questions: tuple[Asked, ...]


def handbook(every_nth: int = 1, per_family: int = 90, seed: int = SEED) -> Handbook:
    """The pages, or only those of every nth thing, and as many questions of each family."""
    chance = random.Random(seed)
    things = [(topic, *pair) for topic, pairs in THINGS.items() for pair in pairs]
    codes = _codes(chance, len(things) * len(MATTERS))
    made: list[Page] = []
    for number, (topic, name, _) in enumerate(things):
        for matter in MATTERS:
            page = _page(chance, number, topic, name, matter, codes, len(made))
            made.append(page)
    kept = [page for page in made if page.thing % every_nth == 0]
    asked = [
        Asked(family, _question(chance, family, page, things), page.id)
        for family in FAMILIES
        for page in chance.sample(kept, min(per_family, len(kept)))
    ]
    return Handbook(tuple(kept), tuple(asked))


def _codes(chance: random.Random, count: int) -> list[str]:
    """Numbers of documents, many of which differ in one sign only."""
    letters = ["BR", "KD", "TX", "VL"]
    numbers = chance.sample(range(1000, 1000 + count), count)
    return [f"{chance.choice(letters)}-{number}" for number in numbers]


def _page(
    chance: random.Random, thing: int, topic: str, name: str, matter: str, codes: Sequence[str], number: int
) -> Page:
    others = [other for other, _ in THINGS[topic] if other != name]
    hall = chance.choice("ABCDEFGH") + str(chance.randint(1, 12))
    fact = chance.choice(MATTERS[matter][0]).format(thing=name, n=chance.randint(2, 60))
    fillers = [filler.format(other=chance.choice(others), hall=hall) for filler in chance.sample(FILLERS, 2)]
    if chance.random() < 0.15:
        fillers.append(f"See also {chance.choice(codes)}.")
    chance.shuffle(fillers)
    at = chance.randint(0, len(fillers))
    sentences = [*fillers[:at], fact, *fillers[at:], f"Document {codes[number]}, hall {hall}."]
    return Page(
        f"p{number}",
        f"{topic}/{name.replace(' ', '-')}.md",
        f"{topic.capitalize()} › {name}",
        " ".join(sentences),
        thing,
        matter,
        hall,
        codes[number],
    )


def _question(chance: random.Random, family: str, page: Page, things: Sequence[tuple[str, str, str]]) -> str:
    _, name, other_words = things[page.thing]
    if family == "identifier":
        return chance.choice(IDENTIFIER_QUESTIONS).format(code=page.code)
    query = chance.choice(MATTERS[page.matter][1])
    if family == "paraphrase":
        return query.format(thing=other_words)
    return f"{query.format(thing=name)} I am in hall {page.hall}."


# ---- measuring


@dataclass(frozen=True, slots=True)
class Recall:
    """The share of questions whose page is among the first `top`, for each family, and the time a query takes."""

    families: dict[str, float]
    overall: float
    times_s: tuple[float, ...]

    @property
    def told(self) -> str:
        shares = ", ".join(f"{family} {share:.1%}" for family, share in self.families.items())
        ordered = sorted(self.times_s)
        p95 = ordered[int(0.95 * (len(ordered) - 1))]
        return (
            f"recall@3 {self.overall:.1%} ({shares}); a query takes {statistics.median(ordered) * 1000:.1f} ms, "
            f"p95 {p95 * 1000:.1f} ms"
        )


def recall(questions: Sequence[Asked], find: Callable[[str], Sequence[str]], top: int = 3) -> Recall:
    """`find` gives the ids of pages, best first."""
    hits: dict[str, list[bool]] = {}
    times_s: list[float] = []
    for asked in questions:
        began = time.perf_counter()
        found = find(asked.query)[:top]
        times_s.append(time.perf_counter() - began)
        hits.setdefault(asked.family, []).append(asked.answer in found)
    every = [hit for its in hits.values() for hit in its]
    shares = {family: statistics.fmean(its) for family, its in hits.items()}
    return Recall(shares, statistics.fmean(every), tuple(times_s))


def as_orders(pages: Sequence[Page]) -> dict[str, list[Any]]:
    """Pages by their source, as the library is given them."""
    by_source: dict[str, list[Any]] = {}
    for page in pages:
        by_source.setdefault(page.source, []).append(page)
    return by_source
