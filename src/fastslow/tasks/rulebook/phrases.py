"""How the rules of the universe are said: for each operation and style the ways used in pretraining, then the ways held out.

In operations `{w}` stands for a verb of writing and `{o}` for the list. Every word of a held-out way occurs elsewhere too.
"""

# fmt: off
Ways = tuple[tuple[str, ...], tuple[str, ...]]

OPERATION_WAYS: dict[str, Ways] = {
    "reverse": (
        (
            "{w} {o} backwards", "reverse {o}", "{w} {o} in reverse", "{w} {o} in reverse order", "turn {o} around",
            "{w} {o} from last to first", "{w} {o} the other way around", "go from the end to the start",
            "start at the end and go back to the front", "flip {o} around", "flip the order of {o}",
            "{w} {o} back to front",
        ),
        (
            "{w} {o} from the end to the front", "turn the order of {o} around", "reverse the order of {o}",
        ),
    ),
    "ascend": (
        (
            "sort {o}", "{w} {o} sorted", "{w} {o} in order", "order {o} from low to high", "{w} {o} from small to big",
            "sort {o} from low to high", "{w} {o} with the smallest first", "put {o} in rising order",
            "{w} the lowest first", "arrange {o} from small to big", "sort {o} upwards", "{w} {o} in rising order",
        ),
        (
            "arrange {o} from low to high", "sort {o} in rising order", "order {o} with the smallest first",
        ),
    ),
    "descend": (
        (
            "sort {o} from high to low", "{w} {o} from big to small", "sort {o} downwards",
            "{w} {o} with the biggest first", "order {o} from high to low", "put {o} in falling order",
            "{w} {o} in falling order", "{w} the highest first", "arrange {o} from big to small",
            "sort {o} with the highest first", "order {o} downwards",
        ),
        (
            "arrange {o} from high to low", "sort {o} in falling order", "order {o} with the biggest first",
        ),
    ),
    "drop first": (
        (
            "drop the first item", "leave out the first item", "remove the first item", "skip the first one",
            "{w} {o} without the first item", "take away the first one", "{w} all but the first item",
            "forget the first item", "{w} {o} but not the first one", "throw away the first item",
            "delete the first item", "drop the front item",
        ),
        (
            "leave out the first one", "{w} {o} without the first one", "remove the front item",
        ),
    ),
    "drop last": (
        (
            "drop the last item", "leave out the last item", "remove the last item", "skip the last one",
            "{w} {o} without the last item", "take away the last one", "{w} all but the last item",
            "forget the last item", "{w} {o} but not the last one", "throw away the last item", "delete the last item",
            "drop the end item",
        ),
        (
            "leave out the last one", "{w} {o} without the last one", "remove the end item",
        ),
    ),
    "first to end": (
        (
            "move the first item to the end", "put the first item last", "bring the first one to the end",
            "send the front item to the end", "take the first item and put it at the end", "shift {o} to the left",
            "the first item goes to the end", "carry the first one to the back", "put the front item at the back",
            "move the first one to the back", "rotate {o} to the left",
        ),
        (
            "send the first item to the back", "carry the first item to the end", "put the first one last",
        ),
    ),
    "last to front": (
        (
            "move the last item to the front", "put the last item first", "bring the last one to the front",
            "send the end item to the front", "take the last item and put it at the front", "shift {o} to the right",
            "the last item goes to the front", "carry the last one to the start", "put the end item at the start",
            "move the last one to the start", "rotate {o} to the right",
        ),
        (
            "send the last item to the start", "carry the last item to the front", "put the last one first",
        ),
    ),
    "swap ends": (
        (
            "swap the first and the last item", "exchange the first and last item", "swap the two ends",
            "trade the ends", "let the first and the last item change places", "exchange the two ends",
            "swap the ends of {o}", "the first and the last item trade places", "switch the first one and the last one",
            "switch the ends of {o}",
        ),
        (
            "exchange the ends of {o}", "switch the two ends", "let the two ends trade places",
        ),
    ),
    "double": (
        (
            "{w} each item twice", "double each item", "repeat each item", "{w} every item two times",
            "double every item", "each item comes twice", "say each one two times", "{w} every one twice",
            "let each item come two times", "repeat every item once", "{w} each one twice in a row",
        ),
        (
            "double every one", "{w} every item twice in a row", "let every item come twice",
        ),
    ),
    "repeat": (
        (
            "{w} the whole list twice", "repeat the whole list", "{w} {o} and then {o} again", "double the whole list",
            "{w} the list two times over", "{w} it all twice over", "say the whole list again after it",
            "repeat all of it", "{w} the whole list and then again", "copy the whole list after itself",
        ),
        (
            "{w} the whole list two times over", "copy all of it after itself", "say it all again after it",
        ),
    ),
    "next": (
        (
            "{w} the next one for each item", "replace each item by the next one", "move each item up by one",
            "change every item to the one after it", "raise each item by one", "go one up with each item",
            "add one to each item", "replace every item with its follower", "each item becomes the next one",
            "{w} the one after each item",
        ),
        (
            "replace every item by the one after it", "raise every item by one", "change each item to the next one",
        ),
    ),
    "previous": (
        (
            "{w} the one before for each item", "replace each item by the one before it", "move each item down by one",
            "change every item to the one before it", "lower each item by one", "go one down with each item",
            "take one from each item", "each item becomes the one before", "{w} the one before each item",
        ),
        (
            "replace every item by the one before", "lower every item by one", "change each item to the one before",
        ),
    ),
    "first only": (
        (
            "{w} only the first item", "keep only the first item", "{w} the first item and nothing else",
            "keep the first one", "{w} just the first one", "all that counts is the first item", "pick the first item",
            "{w} the front item alone", "choose the first one and stop", "name the first item alone",
        ),
        (
            "keep just the first item", "pick only the first one", "{w} the first one and nothing else",
        ),
    ),
    "last only": (
        (
            "{w} only the last item", "keep only the last item", "{w} the last item and nothing else",
            "keep the last one", "{w} just the last one", "all that counts is the last item", "pick the last item",
            "{w} the end item alone", "choose the last one and stop", "name the last item alone",
        ),
        (
            "keep just the last item", "pick only the last one", "{w} the last one and nothing else",
        ),
    ),
    "copy": (
        (
            "{w} {o} as it is", "change nothing", "leave {o} as it is", "copy {o}", "repeat {o} just so",
            "keep {o} the same", "{w} {o} with no change", "do nothing to {o}", "let {o} be", "keep {o} as it is",
        ),
        (
            "leave {o} the same", "copy {o} with no change", "let {o} be as it is",
        ),
    ),
}

STYLE_WAYS: dict[str, Ways] = {
    "frame": (
        (
            "put the answer in {name}", "use {name} around the answer", "the answer stands in {name}",
            "write {name} around it", "wrap the answer in {name}", "close the answer in {name}",
            "every answer goes in {name}", "set {name} around every answer", "the answer must be in {name}",
        ),
        (
            "every answer stands in {name}", "wrap it in {name}", "put {name} around the answer",
        ),
    ),
    "prefix": (
        (
            "begin with {name}", "start the answer with {name}", "the word {name} comes first",
            "write {name} before it", "every answer begins with {name}", "say {name} before the answer",
            "open with the word {name}", "put {name} before the answer", "the answer must start with {name}",
        ),
        (
            "every answer must begin with {name}", "open the answer with {name}", "write {name} before the answer",
        ),
    ),
    "suffix": (
        (
            "end with {name}", "close with the word {name}", "the word {name} comes last", "write {name} after it",
            "every answer ends with {name}", "say {name} after the answer", "finish the answer with {name}",
            "put {name} after the answer", "the answer must end with {name}",
        ),
        (
            "every answer must end with {name}", "finish with the word {name}", "write {name} after the answer",
        ),
    ),
    "separator": (
        (
            "put {name} between the items", "separate the items with {name}", "use {name} between them",
            "write a {one} between the items", "the items are split by {name}", "split the items with {name}",
            "between two items stands a {one}", "keep the items apart with {name}", "join the items with {name}",
        ),
        (
            "put a {one} between the items", "separate them with {name}", "keep them apart with {name}",
        ),
    ),
}

VERBS = (
    "write", "give", "say", "show", "print", "return", "put down", "answer with",
)
LISTS = (
    "it", "the list", "the items", "the input", "what you get", "all of it", "the whole list", "everything",
)
SENTENCES_SEEN = (
    "{code} means : {phrase}", "{code} means {phrase}", "when you see {code} , {phrase}",
    "if the word is {code} , {phrase}", "{code} : {phrase}", "for {code} , {phrase}",
    "the word {code} tells you to {phrase}", "{phrase} when the word is {code}", "read {code} as : {phrase}",
    "{code} asks you to {phrase}", "on {code} you {phrase}", "{phrase} if you see {code}",
    "whenever {code} comes , {phrase}", "{code} says : {phrase}",
)
SENTENCES_HELD = (
    "when the word is {code} , {phrase}", "if you see {code} , {phrase}", "the word {code} means : {phrase}",
    "{code} tells you to {phrase}", "for the word {code} , {phrase}", "{phrase} whenever you see {code}",
)
LINKS_SEEN = (
    "{a} and then {b}", "first {a} , then {b}", "{a} , and after that {b}", "{a} ; then {b}",
)
LINKS_HELD = (
    "{a} , then {b}", "first {a} and after that {b}",
)
NOISE = (
    "be kind", "the sky is blue", "today is a good day", "read with care", "take your time", "the user is a friend",
    "this is a game with lists", "rules may come in any order", "do not hurry", "birds sing in the morning",
    "think first", "we like short answers", "water is wet", "follow the rules",
    "some words have a meaning of their own", "answer the question", "you are a careful helper",
    "you get a word and a list", "help the user", "do what the rules say", "the rules are hidden",
)
FILLERS = (
    "please", "always", "simply", "now", "just", "then", "so",
)
# fmt: on
