"""What offices deal with: the kinds of things that arrive, what is said of them, and the desks they may go to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DomainName = Literal["expenses", "triage", "access", "shipping"]


@dataclass(frozen=True)
class Flag:
    """Something that holds of a few messages: how a message says so, and how a rule does."""

    message: str
    rule: str


@dataclass(frozen=True)
class Domain:
    """One office."""

    noun: str
    """What arrives."""
    says: tuple[str, ...]
    """How a message is put; {who}, {kind} and {amount} are filled in."""
    kinds: tuple[str, ...]
    amount: str
    """What is counted, as a rule and a message say it after the number."""
    most: int
    """The largest number."""
    roles: tuple[str, ...]
    role_rule: str
    """How a rule says that a message is about a role."""
    flags: tuple[Flag, ...]
    labels: tuple[str, ...]


EXPENSES = Domain(
    noun="claim",
    says=(
        "{who} asks for {amount} back for a {kind}.",
        "{who} has paid for a {kind} and wants {amount} back.",
        "Please refund {amount} to {who}: a {kind}.",
    ),
    kinds=(
        "taxi ride", "hotel night", "team lunch", "software licence", "train ticket", "conference fee", "client gift",
        "parking ticket", "phone bill", "textbook", "desk lamp", "flight", "language course", "visa fee", "rental car",
        "headset", "museum visit", "toll charge", "coffee machine", "moving van", "medical check", "uniform",
        "translation", "magazine subscription", "bicycle repair", "printer cartridge", "ferry crossing", "safety shoe",
        "farewell cake", "domain name",
    ),
    amount="euros",
    most=900,
    roles=("an intern", "a contractor", "a director", "a trainee", "a board member"),
    role_rule="it is for",
    flags=(
        Flag("It is marked urgent.", "marked urgent"),
        Flag("There is no receipt.", "without a receipt"),
        Flag("It is from last year.", "from last year"),
        Flag("It was paid in cash.", "paid in cash"),
    ),
    labels=("ledger", "audit", "payroll", "travel", "treasury", "archive"),
)  # fmt: skip
TRIAGE = Domain(
    noun="report",
    says=(
        "{who} reports a problem with a {kind}; it concerns {amount}.",
        "There is trouble with a {kind}, writes {who}. Affected: {amount}.",
        "A {kind} has failed for {amount}, says {who}.",
    ),
    kinds=(
        "login page", "invoice export", "search box", "mobile app", "password reset", "video call", "shared calendar",
        "payment form", "chat window", "file upload", "report builder", "map view", "mail filter", "backup job",
        "printer queue", "time sheet", "door scanner", "price list", "newsletter", "database replica", "test server",
        "news feed", "coupon code", "language switch", "order history", "warehouse robot", "phone line", "photo viewer",
        "survey form", "signature pad",
    ),
    amount="people",
    most=300,
    roles=("a partner", "a reseller", "a student", "a journalist", "an inspector"),
    role_rule="it is reported by",
    flags=(
        Flag("Data may have been lost.", "with possible loss of data"),
        Flag("It has happened before.", "that happened before"),
        Flag("A screenshot is attached.", "with a screenshot"),
        Flag("It began after an update.", "that began after an update"),
    ),
    labels=("red", "blue", "green", "silver", "orange", "violet"),
)  # fmt: skip
ACCESS = Domain(
    noun="request",
    says=(
        "{who} would like access to the {kind} for {amount}.",
        "Please let {who} use the {kind} for {amount}.",
        "{who} needs the {kind}, for {amount}.",
    ),
    kinds=(
        "source archive", "server room", "customer list", "salary table", "test lab", "roof terrace", "design folder",
        "payment console", "camera feed", "contract vault", "key cabinet", "mailing list", "build system", "wiki",
        "loading dock", "press account", "medical file", "floor plan", "spare laptop", "meeting room", "data warehouse",
        "paint shop", "patent register", "visitor log", "radio channel", "tool store", "press kit", "night entrance",
        "staff directory", "training portal",
    ),
    amount="days",
    most=60,
    roles=("a visitor", "a freelancer", "a cleaner", "a supplier", "an auditor"),
    role_rule="it is for",
    flags=(
        Flag("It is for remote work.", "for remote work"),
        Flag("No manager has signed.", "without a manager's signature"),
        Flag("It renews an earlier one.", "that renew an earlier one"),
        Flag("It is for a weekend.", "for a weekend"),
    ),
    labels=("grant", "refuse", "escort", "security", "legal", "postpone"),
)  # fmt: skip
SHIPPING = Domain(
    noun="order",
    says=(
        "{who} has ordered a {kind}, {amount} in all.",
        "To be sent to {who}: a {kind}, {amount}.",
        "A {kind} of {amount} is to go to {who}.",
    ),
    kinds=(
        "garden bench", "glass vase", "paint tin", "book parcel", "car battery", "cheese box", "wall mirror", "tent",
        "wine crate", "lamp", "rug", "piano stool", "ski set", "plant pot", "fire extinguisher", "bird cage", "kettle",
        "drone", "fish tank", "mattress", "printer", "tool chest", "violin", "gas heater", "bicycle", "chandelier",
        "chess table", "sack of salt", "stone statue", "surfboard",
    ),
    amount="kilograms",
    most=90,
    roles=("a hospital", "a school", "a museum", "an embassy", "a festival"),
    role_rule="it is for",
    flags=(
        Flag("It goes abroad.", "that go abroad"),
        Flag("It must arrive tomorrow.", "that must arrive tomorrow"),
        Flag("It is a return.", "that are returns"),
        Flag("Nobody will be at home.", "where nobody will be at home"),
    ),
    labels=("van", "rail", "depot", "courier", "freight", "pickup"),
)  # fmt: skip
DOMAINS: dict[DomainName, Domain] = {
    "expenses": EXPENSES,
    "triage": TRIAGE,
    "access": ACCESS,
    "shipping": SHIPPING,
}
NAMES = (
    "Ilse", "Joren", "Mara", "Tobin", "Edda", "Pell", "Rosa", "Viggo", "Nadia", "Ansel", "Orla", "Bram", "Tilda", "Casimir",
    "Hedy", "Lorcan", "Saskia", "Emeric", "Yara", "Odin",
)  # fmt: skip
