"""A policy without a model: its chance of success on a problem follows from which rules its text holds.

A world has rules of unequal rarity. Every problem falls under one rule, some under two. A rule in the text raises the chance
on the problems that fall under it and changes nothing elsewhere; a false rule lowers it there; text beyond what the model can
follow lowers it everywhere. The grader says of every wrong answer which rule was broken. It may add a remark about that
problem alone or say which answer was right, and it may name a false rule instead. `Policy.play` is what the fast loop calls;
`World.reward` is the exact expected reward of a text on problems that nobody has played, so nothing that is reported has
noise of its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fastslow.fast.reflection.lessons import line_key
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn

SEED_TEXT = "Decide which desk the message belongs to."
TOPICS = (
    "invoice", "refund", "visa", "parcel", "laptop", "badge", "leak", "contract", "shift", "audit", "charger", "permit",
    "pension", "survey", "outage", "licence", "voucher", "tender", "payslip", "courier", "keycard", "warranty", "recall",
    "booking", "deposit", "patent", "canteen", "firewall", "forklift", "brochure", "mortgage", "vaccine", "router",
    "subpoena", "elevator", "podcast", "freezer", "passport", "webinar", "scooter",
)  # fmt: skip
DESKS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron")
NAMES = ("Ilse", "Joren", "Mara", "Tobin", "Edda", "Pell", "Rosa", "Viggo", "Nadia", "Ansel", "Orla", "Bram")
WORDINGS = (
    "A message about a {topic} belongs to the {desk} desk.",
    "Send whatever concerns a {topic} to the {desk} desk.",
    "The {desk} desk handles every {topic}.",
    "If it is about a {topic}, the answer is the {desk} desk.",
    "Note that {topic} matters are for the {desk} desk.",
    "Whatever has to do with a {topic} is for the {desk} desk.",
    "The right place for a {topic} is the {desk} desk, always.",
    "When the subject is a {topic}, choose {desk}.",
    "Our policy is that every {topic} message goes straight to {desk}.",
    "You should have sent this {topic} message to the {desk} desk.",
    "{desk} is responsible for {topic} requests.",
    "We route each {topic} to {desk}, without exception.",
)
_VERDICT = re.compile(r"^This one goes to", re.MULTILINE)
COMPONENT = "system"
NOTHING = Completion((), ())


@dataclass(frozen=True)
class Dials:
    """What kind of task it is. The defaults are the office policy that a 1.5B model was measured on: 0.34 without its eleven
    rules, 0.61 with all of them, and nine of them named over 32 problems."""

    rules: int = 11
    zipf: float = 1.0
    """The share of the r-th rule is proportional to 1 / r to this power; 0 makes all rules equally frequent."""
    base: float = 0.3
    """Chance of success without any rule."""
    effect: float = 0.3
    """What a rule adds on the problems that fall under it."""
    both: float = 0.15
    """Share of problems that fall under two rules; each is then worth half."""
    spread: float = 0.1
    """Standard deviation of the problems' own difficulty."""
    remarks: float = 0.5
    """Share of wrong answers whose feedback also has a line about that problem alone."""
    verdicts: float = 0.0
    """Share of wrong answers whose feedback also says which desk was right and which was given, and no more than that."""
    misleading: float = 0.05
    """What every such verdict in the text costs on all problems, up to six of them."""
    one_line: int = 0
    """1 if all that is said of an answer stands in one line."""
    wrong: float = 0.0
    """Share of the grader's rules that are false: of the same topic, but with another desk."""
    false_kinds: int = 2
    """How many false rules there are for each true one."""
    harm: float = 1.0
    """What a false rule costs on the problems of its topic, as a multiple of `effect`."""
    wordings: int = 1
    """In how many ways the grader says a rule, one of them for each problem."""
    worded: float = 0.7
    """Share of the rules whose topic the questions call by the rule's own word; the others go by another word there."""
    room: float = 1.5
    """How long a text may get at no cost, as a multiple of the oracle's length."""
    crowding: float = 0.15
    """What each further oracle's length costs on every problem."""
    drift: float = 0.0
    """What the weights learn from cycle to cycle: the base rises by this share of the effect, which falls by as much."""


@dataclass(frozen=True)
class Rule:
    desk: str
    called: str
    """What questions call the topic."""
    true: tuple[str, ...]
    """Its wordings."""
    false: tuple[tuple[str, ...], ...]
    """False rules about the same, each with its wordings."""


class World:
    """The rules and problems of one seed."""

    seed_text = SEED_TEXT

    def __init__(self, dials: Dials, seed: int) -> None:
        if dials.rules > len(TOPICS):
            raise ValueError(f"rules={dials.rules}, but there are only {len(TOPICS)} topics; lower rules")
        self.dials, self.seed = dials, seed
        chance = random.Random(f"world/{seed}")
        self.rules = []
        for topic in chance.sample(TOPICS, dials.rules):
            desks = chance.sample(DESKS, 1 + dials.false_kinds)
            true, *false = (
                tuple(way.format(topic=topic, desk=desk) for way in WORDINGS[: dials.wordings]) for desk in desks
            )
            called = topic if chance.random() < dials.worded else topic[::-1]
            self.rules.append(Rule(desks[0], called, true, tuple(false)))
        self.shares = [1 / (rank + 1) ** dials.zipf for rank in range(dials.rules)]

    @property
    def oracle_text(self) -> str:
        return "\n".join([SEED_TEXT, *(rule.true[0] for rule in self.rules)])

    @cached_property
    def room(self) -> float:
        return self.dials.room * count_tokens(self.oracle_text)

    def problem(self, name: str, index: int) -> Example:
        chance = random.Random(f"{self.seed}/{name}/{index}")
        under = chance.choices(range(len(self.rules)), self.shares, k=1 + (chance.random() < self.dials.both))
        number, person = chance.randint(1000, 9999), chance.choice(NAMES)
        topics = ", ".join(self.rules[rule].called for rule in dict.fromkeys(under))
        data = {
            "rules": tuple(dict.fromkeys(under)),
            "ease": chance.gauss(0, self.dials.spread),
            "question": f"Message {number} from {person}, subject: {topics}. Where does it go?",
            "remark": f"Message {number} from {person} was not for the {chance.choice(DESKS)} desk.",
            "wording": chance.randrange(self.dials.wordings),
        }
        return Example(f"simulated-{self.seed}/{name}/{index}", data)

    @cached_property
    def unseen(self) -> list[Example]:
        return [self.problem("test", index) for index in range(300)]

    def chance_of(self, text: str, example: Example, cycle: int = 0) -> float:
        """The chance of a right answer under a text, after so many cycles of training."""
        lines = _lines(text)
        return self._chance(self._held(lines), self._crowding(text), example, cycle)

    def reward(self, text: str, cycle: int = 0) -> float:
        """The expected reward of a text on problems of no split that is played."""
        held, crowding = self._held(_lines(text)), self._crowding(text)
        return sum(self._chance(held, crowding, example, cycle) for example in self.unseen) / len(self.unseen)

    def _held(self, lines: frozenset[str]) -> list[float]:
        """What the text does for each rule, as a multiple of the effect."""
        return [
            float(any(line_key(way) in lines for way in rule.true))
            - self.dials.harm * sum(any(line_key(way) in lines for way in ways) for ways in rule.false)
            for rule in self.rules
        ]

    def _crowding(self, text: str) -> float:
        """What the text's length and the verdicts in it cost."""
        oracle = self.room / self.dials.room
        misleading = self.dials.misleading * min(6, len(_VERDICT.findall(text)))
        return misleading + self.dials.crowding * max(0.0, count_tokens(text) - self.room) / oracle

    def _chance(self, held: Sequence[float], crowding: float, example: Example, cycle: int) -> float:
        dials, under = self.dials, example.data["rules"]
        learnt = 1 - (1 - dials.drift) ** cycle
        known = sum(held[rule] for rule in under) / len(under)
        effect = dials.effect * (learnt + (1 - learnt) * known)
        return min(0.98, max(0.02, dials.base + example.data["ease"] + effect - crowding))


class Policy:
    """Plays problems of a world; counts its rollouts."""

    def __init__(self, world: World) -> None:
        self.world, self.cycle, self.rollouts = world, 0, 0
        self._known: dict[str, tuple[list[float], float]] = {}

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        self.rollouts += len(pairs)
        return [self._rollout(*pair, f"{seed}/{number}") for number, pair in enumerate(pairs)]

    def _rollout(self, example: Example, context: Context, draw: str) -> Rollout:
        chance = random.Random(f"{self.world.seed}/{draw}/{example.id}")
        held, crowding = self._facts(context)
        right = chance.random() < self.world._chance(held, crowding, example, self.cycle)
        desk = self.world.rules[example.data["rules"][0]].desk
        answer = desk if right else chance.choice([other for other in DESKS if other != desk])
        said = ["Right."] if right else self._words(example, held, answer, chance)
        feedback = Feedback(float(right), (" " if self.world.dials.one_line else "\n").join(said))
        turn = Turn(COMPONENT, example.data["question"], (), NOTHING, answer)
        return Rollout(example, context, self.cycle, (turn,), feedback)

    def _facts(self, context: Context) -> tuple[list[float], float]:
        if context.id not in self._known:
            text = context.texts[COMPONENT]
            self._known[context.id] = self.world._held(_lines(text)), self.world._crowding(text)
        return self._known[context.id]

    def _words(self, example: Example, held: Sequence[float], answer: str, chance: random.Random) -> list[str]:
        """The rule that was broken, one that the text lacks where there is one; and perhaps a remark and a verdict."""
        dials, under = self.world.dials, example.data["rules"]
        missing = [rule for rule in under if held[rule] < 1] or list(under)
        rule = self.world.rules[chance.choice(missing)]
        ways = chance.choice(rule.false) if chance.random() < dials.wrong else rule.true
        remark = [example.data["remark"]] if chance.random() < dials.remarks else []
        desk = self.world.rules[under[0]].desk
        verdict = [f"This one goes to the {desk} desk, not to {answer}."] if chance.random() < dials.verdicts else []
        return [*remark, *verdict, ways[example.data["wording"]]]


def count_tokens(text: str) -> int:
    return len(text.split())


def _lines(text: str) -> frozenset[str]:
    return frozenset(line_key(line) for line in text.splitlines())


def explain(dials: Dials) -> Mapping[str, float]:
    """What the dials come to in one world: the reward of the seed text and of the oracle's."""
    world = World(dials, 0)
    return {"seed": world.reward(SEED_TEXT), "oracle": world.reward(world.oracle_text)}
