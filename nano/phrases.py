"""How rules are said in pretraining, and what only pretraining says; slots as in the phrases of the rulebook family."""

# fmt: off
Ways = tuple[str, ...]

OPERATIONS: dict[str, Ways] = {
    "reverse": (
        "{w} {o} backwards", "reverse {o}", "{w} {o} in reverse", "{w} {o} in reverse order",
        "{w} {o} the other way around", "go from the {finish} to the {start}",
        "start at the {finish} and go back to the {start}", "flip {o} around", "{w} {o} back to front",
        "go through {o} in reverse", "turn the order of {o} around",
        "begin with the {last} {i} and end with the {first}", "go from the {last} {i} back to the {first}",
        "reverse the order of {o}", "{w} {o} from the {finish} to the {start}", "go through {o} backwards",
        "{w} {o} from back to front", "read {o} backwards", "count back from the {finish} to the {start}",
    ),
    "ascend": (
        "{w} {o} sorted", "{w} {o} in order", "{sort} {o} {up}", "{w} {o} {up}", "put {o} in rising order",
        "{w} {o} in rising order", "{sort} {o} in rising order", "{w} {o} with the {low} first",
        "{w} the {low} first", "{sort} {o} with the {low} {i} first",
        "begin with the {low} {i} and end with the {high}", "let {o} rise", "the {low} {i} comes first",
        "{w} the {low} {i} before all the others", "{w} {o} in order {up}", "{w} {o} sorted {up}",
        "go from the {low} {i} up to the {high}", "sort {o} and begin with the {low}", "put {o} in order {up}",
        "the {high} {i} comes last", "put the {low} {i} first and the {high} last",
        "sort {o} and finish with the {high}", "let {o} go up", "{w} {o} from the {low} to the {high}",
    ),
    "descend": (
        "{sort} {o} {down}", "put {o} in falling order", "{w} {o} in falling order", "{sort} {o} in falling order",
        "{w} {o} with the {high} first", "{w} the {high} first", "put {o} in order {down}", "let {o} fall",
        "go from the {high} {i} down to the {low}", "the {high} {i} comes first", "{w} {o} in order {down}",
        "{w} the {high} {i} before all the others", "sort {o} and end with the {low}",
        "begin with the {high} {i} and end with the {low}", "sort {o} and begin with the {high}",
        "{w} {o} sorted {down}", "the {low} {i} comes last", "put the {high} {i} first and the {low} last",
        "sort {o} and finish with the {low}", "let {o} go down", "{w} {o} from the {high} to the {low}",
    ),
    "drop first": (
        "{drop} the {first} {i}", "{w} {o} without the {first} {i}", "{w} {o} but not the {first} {i}",
        "the {first} {i} goes away", "begin after the {first} {i}", "do not {w} the {first} {i}",
        "{o} without the {first} {i} is what counts", "let the {first} {i} go", "take the {first} {i} out",
        "{w} everything after the {first} {i}", "throw the {first} {i} out", "the {first} {i} is not needed",
        "you do not need the {first} {i}", "{w} what is left without the {first} {i}",
    ),
    "drop last": (
        "{w} {o} without the {last} {i}", "{w} all but the {last} {i}", "{w} {o} but not the {last} {i}",
        "the {last} {i} goes away", "let the {last} {i} go", "take the {last} {i} out",
        "{w} everything before the {last} {i}", "do not {w} the {last} {i}", "the {last} {i} does not count",
        "{o} without the {last} {i} is what counts", "throw the {last} {i} out", "the {last} {i} is not needed",
        "you do not need the {last} {i}", "{w} what is left without the {last} {i}",
    ),
    "first to end": (
        "{move} the {first} {i} to the {finish}", "put the {first} {i} last",
        "take the {first} {i} and put it at the {finish}", "rotate {o} to the left", "turn {o} to the left",
        "the {first} {i} moves to the {finish}", "let the {first} {i} come last", "make the {first} {i} the last",
        "put the {first} {i} at the {finish}", "the {first} {i} comes last",
        "{drop} the {first} {i} and put it at the {finish}", "move {o} one place to the left",
        "the {first} {i} becomes the last",
    ),
    "last to front": (
        "{move} the {last} {i} to the {start}", "put the {last} {i} first", "shift {o} to the right",
        "take the {last} {i} and put it at the {start}", "rotate {o} to the right",
        "the {last} {i} goes to the {start}", "let the {last} {i} come first", "put the {last} {i} at the {start}",
        "turn {o} to the right", "the {last} {i} moves to the {start}",
        "{drop} the {last} {i} and put it at the {start}", "move {o} one place to the right",
        "the {last} {i} becomes the first",
    ),
    "swap ends": (
        "{swap} the two ends", "{swap} the ends of {o}", "the {first} and the {last} {i} {swap} places",
        "the two ends {swap} places", "put the {first} {i} last and the {last} {i} first",
        "{swap} the {i} at the {start} with the {last} {i}", "the ends of {o} {swap} places",
        "let the ends of {o} {swap} places", "{swap} the {first} {i} with the {last}",
        "the {first} and the {last} {i} change places", "change the places of the {first} and the {last} {i}",
        "let the {first} {i} and the {last} one {swap} places",
    ),
    "double": (
        "double {each} {i}", "repeat {each} {i}", "{each} {i} comes {twice}", "repeat {each} {i} once",
        "{w} {each} {i} {twice} in a row", "{w} {each} {i} and then say it again", "make two of {each} {i}",
        "say {each} {i} and say it again", "{each} {i} comes {twice} in a row", "{w} {each} {i} again after it",
        "copy {each} {i} after itself", "{w} {each} {i} and then again", "{each} {i} is said {twice}",
        "let two of {each} {i} stand in a row",
    ),
    "repeat": (
        "{w} {whole} {twice}", "double {whole}", "repeat {whole}", "{w} {o} and then {o} again",
        "{w} {whole} again after it", "copy {whole} after itself", "{w} {whole} {twice} over",
        "{w} {whole} and then again", "{whole} comes {twice}", "repeat {whole} once", "say {whole} and say it again",
        "let {whole} come {twice}", "{w} {whole} and then say it again", "{whole} is said {twice}",
        "go through {whole} {twice}", "{whole} stands there {twice}",
    ),
    "next": (
        "{w} the next one for {each} {i}", "replace {each} {i} by the next one", "move {each} {i} up by one",
        "change {each} {i} to the one after it", "raise {each} {i} by one", "go one up with {each} {i}",
        "add one to {each} {i}", "replace {each} {i} with its follower", "{each} {i} becomes the next one",
        "{w} the one after {each} {i}", "let {each} {i} go up by one", "count one up from {each} {i}",
        "put the next one in place of {each} {i}", "the one after {each} {i} is what counts",
        "{each} {i} goes one step up", "replace {each} {i} by the one after it", "{each} {i} turns into the next one",
        "go one step up with {each} {i}",
    ),
    "previous": (
        "{w} the one before for {each} {i}", "replace {each} {i} by the one before it", "move {each} {i} down by one",
        "change {each} {i} to the one before it", "lower {each} {i} by one", "take one from {each} {i}",
        "{each} {i} becomes the one before", "{each} {i} goes one step down",
        "put the one before in place of {each} {i}", "the one before {each} {i} is what counts",
        "count one down from {each} {i}", "{each} {i} becomes the one before it",
        "{each} {i} turns into the one before", "go to the one before for {each} {i}", "{each} {i} moves down by one",
        "go one step down with {each} {i}",
    ),
    "first only": (
        "{w} {only} the {first} {i}", "keep {only} the {first} {i}", "{w} the {first} {i} and nothing else",
        "keep the {first} {i}", "all that counts is the {first} {i}", "{w} the {first} {i} alone",
        "choose the {first} {i} and stop", "nothing counts but the {first} {i}", "the {first} {i} is all you need",
        "stop after the {first} {i}", "all you need is the {first} {i}", "the {first} {i} is what counts",
        "{only} the {first} {i} stays", "name the {first} {i} alone", "you only need the {first} {i}",
        "{drop} everything but the {first} {i}", "nothing is left but the {first} {i}",
    ),
    "last only": (
        "{w} {only} the {last} {i}", "keep {only} the {last} {i}", "{w} the {last} {i} and nothing else",
        "keep the {last} {i}", "{w} the {last} {i} alone", "choose the {last} {i} and stop",
        "{only} the {last} {i} stays", "pick {only} the {last} {i}", "all you need is the {last} {i}",
        "the {last} {i} is what counts", "nothing counts but the {last} {i}", "the {last} {i} is all you need",
        "choose {only} the {last} {i}", "you only need the {last} {i}", "{drop} everything but the {last} {i}",
        "{only} the {last} {i} counts", "nothing is left but the {last} {i}",
        "stop at the {last} {i} and {w} it alone",
    ),
    "copy": (
        "{w} {o} {same}", "change nothing", "leave {o} {same}", "copy {o}", "keep {o} {same}", "do nothing to {o}",
        "let {o} be", "do not touch {o}", "{whole} is all you need", "{o} with no change is what counts",
        "begin with the {first} {i} and end with the {last}", "let {o} be as it is", "copy {o} with no change",
        "do not change {o}", "{o} is not changed", "{o} needs no change",
    ),
}
STYLES: dict[str, Ways] = {
    "frame": (
        "use {name} around {a}", "write {name} around {a}", "wrap {a} in {name}", "close {a} in {name}",
        "{a} goes in {name}", "set {name} around {a}", "{a} must be in {name}", "let {name} stand around {a}",
        "{name} go around {a}", "{a} needs {name} around it", "put {name} around {a}",
    ),
    "prefix": (
        "start {a} with {name}", "the word {name} comes first", "write {name} before {a}", "{a} begins with {name}",
        "open with the word {name}", "put {name} before {a}", "{a} must start with {name}", "open {a} with {name}",
        "{a} must begin with {name}", "let {a} begin with {name}", "{name} goes before {a}",
    ),
    "suffix": (
        "end with {name}", "close with the word {name}", "the word {name} comes last", "write {name} after {a}",
        "{a} ends with {name}", "finish {a} with {name}", "put {name} after {a}", "{a} must end with {name}",
        "let {a} end with {name}", "{name} goes after {a}", "{a} needs {name} after it",
    ),
    "separator": (
        "put {name} between the items", "separate the items with {name}", "write a {one} between the items",
        "the items are split by {name}", "split the items with {name}", "keep the items apart with {name}",
        "join the items with {name}", "{name} go between the items", "write {name} between them",
        "put a {one} between the items", "separate them with {name}",
    ),
}
SENTENCES: Ways = (
    "{code} means : {phrase}", "{code} means {phrase}", "{code} : {phrase}", "for {code} , {phrase}",
    "for the word {code} , {phrase}", "the word {code} tells you to {phrase}", "{code} tells you to {phrase}",
    "read {code} as : {phrase}", "{code} asks you to {phrase}", "the word {code} asks you to {phrase}",
    "on {code} you {phrase}", "{code} says : {phrase}", "the word {code} says : {phrase}",
    "the word {code} means : {phrase}", "with {code} , {phrase}", "when you see {code} , {phrase}",
    "when the word is {code} , {phrase}", "when {code} comes , {phrase}", "when you read {code} , {phrase}",
    "if you see {code} , {phrase}", "if the word is {code} , {phrase}", "if you read {code} , {phrase}",
    "whenever you read {code} , {phrase}", "every time the word is {code} , {phrase}",
    "every time {code} comes , {phrase}", "{phrase} when you see {code}", "{phrase} when the word is {code}",
    "{phrase} when you read {code}", "{phrase} if you see {code}", "{phrase} if {code} comes",
    "{phrase} if you read {code}", "{phrase} whenever you see {code}", "{phrase} whenever the word is {code}",
    "{phrase} whenever {code} comes", "{phrase} whenever you read {code}", "{phrase} every time you see {code}",
    "{phrase} every time the word is {code}", "{phrase} every time you read {code}",
)
"""What a made-up word means."""
LINKS: Ways = (
    "first {first} , then {second}", "{first} , and after that {second}", "{first} , then {second}",
    "first {first} and after that {second}",
)
EXCEPTIONS: tuple[Ways, Ways] = (
    (
        "{phrase} , but with {kind} {other}", "{phrase} ; for {kind} {other} instead",
        "with {kind} {other} , else {phrase}", "{phrase} , but if the items are {kind} {other}",
        "{phrase} , except for {kind} : {other}", "if the items are {kind} {other} , else {phrase}",
        "{phrase} , unless the items are {kind} : then {other}",
    ),
    (
        "{phrase} , unless you get {kind} : then {other}", "{phrase} , but for {kind} {other} instead",
    ),
)
"""A word that means something else for one kind of item. In pretraining, and held out."""
SPARED: tuple[Ways, Ways] = (
    (
        "{style} , except for {code}", "{style} , unless the word is {code}", "{style} , but never with {code}",
        "{style} , except when the word is {code}",
    ),
    (
        "{style} , but not for {code}", "{style} , but not when you see {code}",
    ),
)
"""A style that does not hold for one word. In pretraining, and held out."""
PRIORITIES: dict[str, tuple[Ways, Ways]] = {
    "first": (
        (
            "if two rules do not agree , follow the first", "the earlier rule wins",
            "where rules disagree , the earlier one counts", "the first rule beats the later one",
            "if rules do not agree , the first rule counts",
        ),
        (
            "when two rules disagree , the first one counts", "when two rules disagree , the earlier one wins",
        ),
    ),
    "last": (
        (
            "when two rules disagree , the last one counts", "where rules disagree , the later one counts",
            "the last rule beats the earlier one", "when two rules disagree , the later one wins",
            "if rules do not agree , the last rule counts",
        ),
        (
            "if two rules do not agree , follow the last", "the later rule wins",
        ),
    ),
}
"""Which of two rules about the same word counts: the one that stands first in the text, or the last. Likewise."""
NOISE = (
    "be kind", "the sky is blue", "today is a good day", "read with care", "take your time", "the user is a friend",
    "this is a game with lists", "rules may come in any order", "do not hurry", "birds sing in the morning",
    "think first", "we like short answers", "water is wet", "follow the rules",
    "some words have a meaning of their own", "answer the question", "you are a careful helper",
    "you get a word and a list", "help the user", "do what the rules say", "the rules are hidden",
)
FILLERS = ("please", "always", "simply", "now", "so")
# fmt: on
