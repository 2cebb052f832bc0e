"""How the rules of a rulebook are said. A name in braces is a slot, filled at random from `SLOTS`, or with what a sentence is
about. nano never saw these sentences; every word in them it did: nano/phrases.py has those of its pretraining."""

# fmt: off
Ways = tuple[str, ...]

SLOTS: dict[str, tuple[str, ...]] = {
    "w": ("write", "give", "say", "show", "print", "return", "put down", "answer with"),
    "o": ("it", "the list", "the items", "the input", "what you get", "all of it", "the whole list", "everything"),
    "whole": ("the whole list", "the full list", "all of the list"),
    "i": ("item", "one", "element", "entry"),
    "each": ("each", "every"),
    "first": ("first", "front", "leading"),
    "last": ("last", "end", "final"),
    "start": ("start", "front", "beginning"),
    "finish": ("end", "back"),
    "drop": ("drop", "leave out", "remove", "skip", "take away", "forget", "throw away", "delete"),
    "move": ("move", "bring", "send", "carry"),
    "swap": ("swap", "exchange", "switch", "trade"),
    "sort": ("sort", "order", "arrange"),
    "up": ("from low to high", "from small to big", "upwards"),
    "down": ("from high to low", "from big to small", "downwards"),
    "low": ("smallest", "lowest"),
    "high": ("biggest", "highest"),
    "twice": ("twice", "two times"),
    "only": ("only", "just"),
    "same": ("the same", "as it is", "unchanged"),
    "a": ("the answer", "every answer", "each answer", "your answer"),
}

OPERATIONS: dict[str, Ways] = {
    "reverse": ("turn {o} around", "{w} {o} from {last} to {first}", "flip the order of {o}"),
    "ascend": ("sort {o}", "sort {o} and end with the {high}", "go from the {low} to the {high} {i}"),
    "descend": ("{w} {o} {down}", "{sort} {o} with the {high} {i} first", "go from the {high} to the {low} {i}"),
    "drop first": (
        "{w} all but the {first} {i}", "the {first} {i} does not count", "what counts is {o} without the {first} {i}",
    ),
    "drop last": ("{drop} the {last} {i}", "stop before the {last} {i}", "what counts is {o} without the {last} {i}"),
    "first to end": (
        "shift {o} to the left", "the {first} {i} goes to the {finish}", "{w} the {first} {i} after all the others",
    ),
    "last to front": (
        "make the {last} {i} the first", "{w} the {last} {i} before all the others", "the {last} {i} comes first",
    ),
    "swap ends": (
        "{swap} the {first} and the {last} {i}", "let the {first} and the {last} {i} {swap} places",
        "let the two ends {swap} places",
    ),
    "double": ("{w} {each} {i} {twice}", "let {each} {i} come {twice}", "{each} {i} stands there {twice}"),
    "repeat": ("{whole} comes {twice} in a row", "make two of {whole}", "{w} {whole} {twice} in a row"),
    "next": (
        "put the one after in place of {each} {i}", "go to the one after for {each} {i}",
        "{each} {i} moves up by one",
    ),
    "previous": ("go one down with {each} {i}", "{w} the one before {each} {i}", "let {each} {i} go down by one"),
    "first only": ("pick the {first} {i}", "pick {only} the {first} {i}", "{only} the {first} {i} counts"),
    "last only": ("all that counts is the {last} {i}", "pick the {last} {i}", "name the {last} {i} alone"),
    "copy": ("{w} {o} with no change", "{o} stays {same}", "{w} {o} back unchanged"),
}
STYLES: dict[str, Ways] = {
    "frame": ("put {a} in {name}", "{a} stands in {name}", "let {a} stand in {name}"),
    "prefix": ("begin with {name}", "say {name} before {a}", "{a} needs {name} before it"),
    "suffix": ("say {name} after {a}", "finish with the word {name}", "close {a} with {name}"),
    "separator": ("use {name} between them", "between two items stands a {one}", "the items need {name} between them"),
}
SENTENCES: Ways = (
    "{phrase} on {code}", "if {code} comes , {phrase}", "whenever you see {code} , {phrase}",
    "whenever the word is {code} , {phrase}", "whenever {code} comes , {phrase}",
    "every time you see {code} , {phrase}", "every time you read {code} , {phrase}", "{phrase} when {code} comes",
    "{phrase} if the word is {code}", "{phrase} every time {code} comes",
)
"""What a made-up word means."""
LINKS: Ways = ("{first} and then {second}", "{first} ; then {second}")
# fmt: on
