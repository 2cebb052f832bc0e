"""An agent at the desk of a warehouse: it asks a model for one command a turn, over plain HTTP in the shape of OpenAI, and
tells it what came of it. How the desk wants its commands is only said afterwards."""

import json
import re
import urllib.request

SYSTEM = (
    "You ship the orders of a warehouse in five steps: 1 open, 2 weigh, 3 quote, 4 book, 5 close. In each step write one "
    "command and nothing else: the word of the step, and the number, the place or the letter that it needs."
)
RULES = {
    "open": "Step 1: for order 582 write: open 582",
    "weigh": "Step 2: weigh in grams. For 4 kg write: weigh 4000",
    "quote": "Step 3: for the city Rome and box B write: quote ROME B",
    "book": "Step 4: for box B and the price 35 write: book B 35",
    "care": "Step 4, if the goods are fragile: for box B and the price 35 write: book B 35 care",
    "close": "Step 5: for order 582 write: close 582",
}
COMMAND = re.compile(r"\b(open|weigh|quote|book|close) +([\w ]+)", re.I)
REFUSALS = 3
TURNS = 8


def ask(base_url, api_key, messages):
    """One answer of the model, up to the end of its first line."""
    body = json.dumps({"model": "policy", "messages": messages, "stop": ["\n"]}).encode()
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{base_url}/chat/completions", body, headers)) as response:
        return json.load(response)["choices"][0]["message"]["content"] or ""


class Desk:
    """What the commands do: each in its turn, and in the one form that the desk reads."""

    def __init__(self, order):
        self.order, self.done, self.refusals = order, 0, []
        price = f"{order['box']} {order['price']}"
        number = str(order["number"])
        self.wanted = [
            ("open", f"open {number}", f"Order {number} is open."),
            ("weigh", f"weigh {1000 * order['kilograms']}", f"It needs box {order['box']}."),
            ("quote", f"quote {order['city'].upper()} {order['box']}", f"The price is {order['price']}."),
            ("book", f"book {price} care" if order["fragile"] else f"book {price}", "It is booked."),
            ("close", f"close {number}", f"Order {number} is closed."),
        ]

    @property
    def closed(self):
        return self.done == len(self.wanted)

    def do(self, command):
        _, expected, result = self.wanted[self.done]
        found = COMMAND.search(command)
        if found and f"{found[1].lower()} {' '.join(found[2].split())}" == expected:
            self.done += 1
            return result
        self.refusals.append((self.done, command))
        return "Refused."

    def screen(self, said):
        return said if self.closed else f"{said}\nStep {self.done + 1}:"


def grade(desk):
    """The share of the five steps that were done; and how the desk wants the steps that were not."""
    if desk.closed:
        return 1.0, "Right."
    said = [
        f"'{command[:40]}' was refused; it wanted '{desk.wanted[place][1]}'." for place, command in desk.refusals[-1:]
    ]
    for name, _, _ in desk.wanted[desk.done : desk.done + 2]:
        said.append(RULES[name])
        if name == "book" and desk.order["fragile"]:
            said.append(RULES["care"])
    return desk.done / len(desk.wanted), "\n".join(said)


def solve(problem, base_url, api_key):
    desk = Desk(problem)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": desk.screen(problem["question"])}]
    for _ in range(TURNS):
        answer = ask(base_url, api_key, messages)
        messages += [
            {"role": "assistant", "content": answer},
            {"role": "user", "content": desk.screen(desk.do(answer))},
        ]
        if desk.closed or len(desk.refusals) == REFUSALS:
            break
    return grade(desk)
