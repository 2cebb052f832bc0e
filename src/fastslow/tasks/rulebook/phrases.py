"""How the rules of the universe are said: for each operation and style the ways used in pretraining, then the ways held out.

A name in braces is a slot, filled at random from `SLOTS`, or with what a sentence is about. Every word of a held-out way
occurs elsewhere too; many are the ways of a mirror image: "let the last item go" is seen, "let the first item go" is not.
"""

# fmt: off
Ways = tuple[tuple[str, ...], tuple[str, ...]]

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

OPERATION_WAYS: dict[str, Ways] = {
    "reverse": (
        (
            "{w} {o} backwards", "reverse {o}", "{w} {o} in reverse", "{w} {o} in reverse order", "turn {o} around",
            "{w} {o} from {last} to {first}", "{w} {o} the other way around", "go from the {finish} to the {start}",
            "start at the {finish} and go back to the {start}", "flip {o} around", "flip the order of {o}",
            "{w} {o} back to front", "go through {o} in reverse", "turn the order of {o} around",
        ),
        (
            "reverse the order of {o}", "{w} {o} from the {finish} to the {start}", "go through {o} backwards",
        ),
    ),
    "ascend": (
        (
            "sort {o}", "{w} {o} sorted", "{w} {o} in order", "{sort} {o} {up}", "{w} {o} {up}",
            "put {o} in rising order", "{w} {o} in rising order", "{sort} {o} in rising order",
            "{w} {o} with the {low} first", "{w} the {low} first", "{sort} {o} with the {low} {i} first",
            "begin with the {low} {i} and end with the {high}", "let {o} rise", "the {low} {i} comes first",
        ),
        (
            "go from the {low} {i} up to the {high}", "sort {o} and begin with the {low}", "put {o} in order {up}",
        ),
    ),
    "descend": (
        (
            "{sort} {o} {down}", "{w} {o} {down}", "put {o} in falling order", "{w} {o} in falling order",
            "{sort} {o} in falling order", "{w} {o} with the {high} first", "{w} the {high} first",
            "{sort} {o} with the {high} {i} first", "put {o} in order {down}", "let {o} fall",
            "go from the {high} {i} down to the {low}", "the {high} {i} comes first", "{w} {o} in order {down}",
        ),
        (
            "begin with the {high} {i} and end with the {low}", "sort {o} and begin with the {high}",
            "{w} {o} sorted {down}",
        ),
    ),
    "drop first": (
        (
            "{drop} the {first} {i}", "{w} {o} without the {first} {i}", "{w} all but the {first} {i}",
            "{w} {o} but not the {first} {i}", "the {first} {i} goes away", "begin after the {first} {i}",
            "do not {w} the {first} {i}", "{o} without the {first} {i} is what counts",
            "the {first} {i} does not count",
        ),
        (
            "let the {first} {i} go", "take the {first} {i} out", "{w} everything after the {first} {i}",
        ),
    ),
    "drop last": (
        (
            "{drop} the {last} {i}", "{w} {o} without the {last} {i}", "{w} all but the {last} {i}",
            "{w} {o} but not the {last} {i}", "the {last} {i} goes away", "stop before the {last} {i}",
            "let the {last} {i} go", "take the {last} {i} out", "{w} everything before the {last} {i}",
        ),
        (
            "do not {w} the {last} {i}", "the {last} {i} does not count", "{o} without the {last} {i} is what counts",
        ),
    ),
    "first to end": (
        (
            "{move} the {first} {i} to the {finish}", "put the {first} {i} last", "shift {o} to the left",
            "take the {first} {i} and put it at the {finish}", "rotate {o} to the left",
            "the {first} {i} goes to the {finish}", "turn {o} to the left", "the {first} {i} moves to the {finish}",
            "{w} the {first} {i} after all the others",
        ),
        (
            "let the {first} {i} come last", "make the {first} {i} the last", "put the {first} {i} at the {finish}",
        ),
    ),
    "last to front": (
        (
            "{move} the {last} {i} to the {start}", "put the {last} {i} first", "shift {o} to the right",
            "take the {last} {i} and put it at the {start}", "rotate {o} to the right",
            "the {last} {i} goes to the {start}", "let the {last} {i} come first", "make the {last} {i} the first",
            "put the {last} {i} at the {start}",
        ),
        (
            "turn {o} to the right", "the {last} {i} moves to the {start}", "{w} the {last} {i} before all the others",
        ),
    ),
    "swap ends": (
        (
            "{swap} the {first} and the {last} {i}", "{swap} the two ends", "{swap} the ends of {o}",
            "let the {first} and the {last} {i} {swap} places", "the {first} and the {last} {i} {swap} places",
            "the two ends {swap} places", "put the {first} {i} last and the {last} {i} first",
            "{swap} the {i} at the {start} with the {last} {i}", "the ends of {o} {swap} places",
        ),
        (
            "let the two ends {swap} places", "let the ends of {o} {swap} places",
            "{swap} the {first} {i} with the {last}",
        ),
    ),
    "double": (
        (
            "{w} {each} {i} {twice}", "double {each} {i}", "repeat {each} {i}", "{each} {i} comes {twice}",
            "let {each} {i} come {twice}", "repeat {each} {i} once", "{w} {each} {i} {twice} in a row",
            "{w} {each} {i} and then say it again", "make two of {each} {i}",
        ),
        (
            "{w} {each} {i} again after it", "copy {each} {i} after itself", "{w} {each} {i} and then again",
        ),
    ),
    "repeat": (
        (
            "{w} {whole} {twice}", "double {whole}", "repeat {whole}", "{w} {o} and then {o} again",
            "{w} {whole} again after it", "copy {whole} after itself", "{w} {whole} {twice} over",
            "{w} {whole} and then again", "{whole} comes {twice}", "repeat {whole} once",
        ),
        (
            "let {whole} come {twice}", "{w} {whole} {twice} in a row", "{w} {whole} and then say it again",
        ),
    ),
    "next": (
        (
            "{w} the next one for {each} {i}", "replace {each} {i} by the next one", "move {each} {i} up by one",
            "change {each} {i} to the one after it", "raise {each} {i} by one", "go one up with {each} {i}",
            "add one to {each} {i}", "replace {each} {i} with its follower", "{each} {i} becomes the next one",
            "{w} the one after {each} {i}", "let {each} {i} go up by one", "count one up from {each} {i}",
        ),
        (
            "{each} {i} goes one step up", "put the one after in place of {each} {i}",
            "replace {each} {i} by the one after it",
        ),
    ),
    "previous": (
        (
            "{w} the one before for {each} {i}", "replace {each} {i} by the one before it",
            "move {each} {i} down by one", "change {each} {i} to the one before it", "lower {each} {i} by one",
            "go one down with {each} {i}", "take one from {each} {i}", "{each} {i} becomes the one before",
            "{w} the one before {each} {i}", "{each} {i} goes one step down",
            "put the one before in place of {each} {i}",
        ),
        (
            "let {each} {i} go down by one", "count one down from {each} {i}", "{each} {i} becomes the one before it",
        ),
    ),
    "first only": (
        (
            "{w} {only} the {first} {i}", "keep {only} the {first} {i}", "{w} the {first} {i} and nothing else",
            "keep the {first} {i}", "all that counts is the {first} {i}", "pick the {first} {i}",
            "{w} the {first} {i} alone", "choose the {first} {i} and stop", "nothing counts but the {first} {i}",
            "the {first} {i} is all you need", "stop after the {first} {i}",
        ),
        (
            "{only} the {first} {i} stays", "pick {only} the {first} {i}", "name the {first} {i} alone",
        ),
    ),
    "last only": (
        (
            "{w} {only} the {last} {i}", "keep {only} the {last} {i}", "{w} the {last} {i} and nothing else",
            "keep the {last} {i}", "all that counts is the {last} {i}", "pick the {last} {i}",
            "{w} the {last} {i} alone", "choose the {last} {i} and stop", "{only} the {last} {i} stays",
            "name the {last} {i} alone", "pick {only} the {last} {i}",
        ),
        (
            "nothing counts but the {last} {i}", "the {last} {i} is all you need", "choose {only} the {last} {i}",
        ),
    ),
    "copy": (
        (
            "{w} {o} {same}", "change nothing", "leave {o} {same}", "copy {o}", "keep {o} {same}",
            "{w} {o} with no change", "do nothing to {o}", "let {o} be", "{o} stays {same}", "do not touch {o}",
        ),
        (
            "let {o} be as it is", "copy {o} with no change", "do not change {o}",
        ),
    ),
}

STYLE_WAYS: dict[str, Ways] = {
    "frame": (
        (
            "put {a} in {name}", "use {name} around {a}", "{a} stands in {name}", "write {name} around {a}",
            "wrap {a} in {name}", "close {a} in {name}", "{a} goes in {name}", "set {name} around {a}",
            "{a} must be in {name}", "let {name} stand around {a}", "{name} go around {a}",
        ),
        (
            "{a} needs {name} around it", "put {name} around {a}", "let {a} stand in {name}",
        ),
    ),
    "prefix": (
        (
            "begin with {name}", "start {a} with {name}", "the word {name} comes first", "write {name} before {a}",
            "{a} begins with {name}", "say {name} before {a}", "open with the word {name}", "put {name} before {a}",
            "{a} must start with {name}", "{a} needs {name} before it", "open {a} with {name}",
        ),
        (
            "{a} must begin with {name}", "let {a} begin with {name}", "{name} goes before {a}",
        ),
    ),
    "suffix": (
        (
            "end with {name}", "close with the word {name}", "the word {name} comes last", "write {name} after {a}",
            "{a} ends with {name}", "say {name} after {a}", "finish {a} with {name}", "put {name} after {a}",
            "{a} must end with {name}", "let {a} end with {name}", "{name} goes after {a}",
        ),
        (
            "{a} needs {name} after it", "finish with the word {name}", "close {a} with {name}",
        ),
    ),
    "separator": (
        (
            "put {name} between the items", "separate the items with {name}", "use {name} between them",
            "write a {one} between the items", "the items are split by {name}", "split the items with {name}",
            "between two items stands a {one}", "keep the items apart with {name}", "join the items with {name}",
            "{name} go between the items", "write {name} between them",
        ),
        (
            "put a {one} between the items", "separate them with {name}", "the items need {name} between them",
        ),
    ),
}

SENTENCES: Ways = (
    (
        "{code} means : {phrase}", "{code} means {phrase}", "when you see {code} , {phrase}",
        "if the word is {code} , {phrase}", "{code} : {phrase}", "for {code} , {phrase}",
        "the word {code} tells you to {phrase}", "{phrase} when the word is {code}", "read {code} as : {phrase}",
        "{code} asks you to {phrase}", "on {code} you {phrase}", "{phrase} if you see {code}",
        "whenever {code} comes , {phrase}", "{code} says : {phrase}",
    ),
    (
        "when the word is {code} , {phrase}", "if you see {code} , {phrase}", "the word {code} means : {phrase}",
        "{code} tells you to {phrase}", "for the word {code} , {phrase}", "{phrase} whenever you see {code}",
    ),
)
"""What a made-up word means."""
LINKS: Ways = (
    (
        "{first} and then {second}", "first {first} , then {second}", "{first} , and after that {second}",
        "{first} ; then {second}",
    ),
    (
        "{first} , then {second}", "first {first} and after that {second}",
    ),
)
"""One operation after another."""
EXCEPTIONS: Ways = (
    (
        "{phrase} , but with {kind} {other}", "{phrase} ; for {kind} {other} instead",
        "with {kind} {other} , else {phrase}", "{phrase} , unless you get {kind} : then {other}",
        "{phrase} , but if the items are {kind} {other}",
    ),
    (
        "{phrase} , but for {kind} {other} instead", "{phrase} , unless the items are {kind} : then {other}",
    ),
)
"""A word that means something else for one kind of item."""
SPARED: Ways = (
    (
        "{style} , but not for {code}", "{style} , except for {code}", "{style} , unless the word is {code}",
        "{style} , but never with {code}",
    ),
    (
        "{style} , except when the word is {code}", "{style} , but not when you see {code}",
    ),
)
"""A style that does not hold for one word."""
PRIORITIES: dict[str, Ways] = {
    "first": (
        (
            "when two rules disagree , the first one counts", "if two rules do not agree , follow the first",
            "the earlier rule wins", "where rules disagree , the earlier one counts",
            "the first rule beats the later one",
        ),
        (
            "when two rules disagree , the earlier one wins", "if rules do not agree , the first rule counts",
        ),
    ),
    "last": (
        (
            "when two rules disagree , the last one counts", "if two rules do not agree , follow the last",
            "the later rule wins", "where rules disagree , the later one counts",
            "the last rule beats the earlier one",
        ),
        (
            "when two rules disagree , the later one wins", "if rules do not agree , the last rule counts",
        ),
    ),
}
"""Which of two rules about the same word counts: the one that stands first in the text, or the last."""
NOISE = (
    "be kind", "the sky is blue", "today is a good day", "read with care", "take your time", "the user is a friend",
    "this is a game with lists", "rules may come in any order", "do not hurry", "birds sing in the morning",
    "think first", "we like short answers", "water is wet", "follow the rules",
    "some words have a meaning of their own", "answer the question", "you are a careful helper",
    "you get a word and a list", "help the user", "do what the rules say", "the rules are hidden",
)
FILLERS = ("please", "always", "simply", "now", "so")
# fmt: on
