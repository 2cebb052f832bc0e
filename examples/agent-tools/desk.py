"""An agent at the desk of a warehouse: it works with five tools, over plain HTTP in the shape of OpenAI. How the desk wants
its tools to be called is only said afterwards."""

import json
import urllib.request

SYSTEM = "You ship the orders of a warehouse in five steps. In each step call one tool and write nothing else."
REFUSALS = 3
TURNS = 8


def tool(name, about, **parameters):
    """A tool in the shape of OpenAI."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


TOOLS = [
    tool("open", "Step 1: open the order.", order="integer"),
    tool("weigh", "Step 2: say what it weighs, which tells the box.", weight="integer"),
    tool("quote", "Step 3: ask for the price to a place.", place="string", box="string"),
    tool("book", "Step 4: book the box at its price.", box="string", price="integer", handling="string"),
    tool("close", "Step 5: close the order.", order="integer"),
]
RULES = {
    "open": ("Step 1: for order 582 call:", {"order": 582}),
    "weigh": ("Step 2: weigh in grams. For 4 kg call:", {"weight": 4000}),
    "quote": ("Step 3: for the city Rome and box B call:", {"place": "ROME", "box": "B"}),
    "book": ("Step 4: for box B and the price 35 call:", {"box": "B", "price": 35, "handling": "plain"}),
    "care": ("Step 4, if the goods are fragile: call:", {"box": "B", "price": 35, "handling": "care"}),
    "close": ("Step 5: for order 582 call:", {"order": 582}),
}


def ask(base_url, api_key, messages):
    """The model's next message."""
    body = json.dumps({"model": "policy", "messages": messages, "tools": TOOLS}).encode()
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{base_url}/chat/completions", body, headers)) as response:
        return json.load(response)["choices"][0]["message"]


def written(name, arguments):
    """A call as the model writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class Desk:
    """What the tools do: each in its turn, and with the arguments that the desk reads."""

    def __init__(self, order):
        self.order, self.done, self.refusals = order, 0, []
        number, box, price = order["number"], order["box"], order["price"]
        handling = "care" if order["fragile"] else "plain"
        self.wanted = [
            ("open", {"order": number}, f"Order {number} is open."),
            ("weigh", {"weight": 1000 * order["kilograms"]}, f"It needs box {box}."),
            ("quote", {"place": order["city"].upper(), "box": box}, f"The price is {price}."),
            ("book", {"box": box, "price": price, "handling": handling}, "It is booked."),
            ("close", {"order": number}, f"Order {number} is closed."),
        ]

    @property
    def closed(self):
        return self.done == len(self.wanted)

    def do(self, name, arguments):
        """What the desk answers to a call."""
        wanted, expected, result = self.wanted[self.done]
        if name == wanted and arguments == expected:
            self.done += 1
            return result if self.closed else f"{result} Next is step {self.done + 1}."
        self.refusals.append((self.done, name, arguments))
        return f"Refused. This is step {self.done + 1}."


def grade(desk):
    """The share of the five steps that were done; and how the desk wants the steps that were not."""
    if desk.closed:
        return 1.0, "Right."
    said = []
    for place, name, arguments in desk.refusals[-1:]:
        if name:
            wanted = written(*desk.wanted[place][:2])
            said.append(f"'{written(name, arguments)[:120]}' was refused; it wanted '{wanted}'.")
        else:
            said.append(
                "No tool was called: write the call alone, between <tool_call> and </tool_call>, without ```json."
            )
    for name, _, _ in desk.wanted[desk.done : desk.done + 2]:
        for rule in ("book", "care") if name == "book" and desk.order["fragile"] else (name,):
            words, arguments = RULES[rule]
            said.append(f"{words} {written(name, arguments)}")
    return desk.done / len(desk.wanted), "\n".join(said)


def solve(problem, base_url, api_key):
    desk = Desk(problem)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": problem["question"]}]
    for _ in range(TURNS):
        answer = ask(base_url, api_key, messages)
        messages.append(answer)
        if not answer.get("tool_calls"):
            messages.append({"role": "user", "content": desk.do("", {})})
        for call in answer.get("tool_calls") or ():
            function = call["function"]
            result = desk.do(function["name"], json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if desk.closed:
                break
        if desk.closed or len(desk.refusals) >= REFUSALS:
            break
    return grade(desk)
