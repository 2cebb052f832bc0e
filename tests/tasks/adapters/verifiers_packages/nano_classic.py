"""Environments of verifiers before 0.4, of several kinds. What the made-up words say to do is told in the state."""

import json
from typing import Any

import verifiers as vf
from datasets import Dataset

RULES = {"zorka": "zorka means : write the list backwards.", "fonrax": "fonrax means : drop the first item."}
LISTS = ("y n b i", "p m z", "g q e j", "t z i", "w z t e", "x c v", "k t u g", "p o q")
DRAWERS = {"0": "red", "1": "green", "2": "blue"}


def right(question: str) -> str:
    word, _, items = question.partition(" : ")
    return " ".join(items.split()[::-1] if word == "zorka" else items.split()[1:])


QUESTIONS = [f"{word} : {items}" for items in LISTS for word in RULES]
PAIRS = [["zorka : p m", "fonrax : z p"], ["zorka : z p", "fonrax : m z"], ["zorka : m z", "fonrax : p m"]]


def rows(questions: list[str]) -> Dataset:
    return Dataset.from_list([{"question": question, "answer": right(question)} for question in questions])


def correct(completion: Any, answer: str, state: Any) -> float:
    """The list after what the word says to do."""
    given = completion[-1]["content"] == answer
    if not given:
        state["feedback"] = RULES[state["prompt"][-1]["content"].split()[0]]
    return float(given)


async def short(completion: Any) -> float:
    return float(len(completion[-1]["content"].split()) <= 4)


class Turns(vf.MultiTurnEnv):
    """One question after the other."""

    async def setup_state(self, state: Any) -> None:
        state["left"] = list(state["info"]["questions"][1:])
        state["solved"] = 0

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        state["solved"] += messages[-1]["content"] == right(messages[-2]["content"])
        if not state["left"]:
            state["final_env_response"] = [vf.UserMessage(content="done")]
            return state["final_env_response"]
        return [vf.UserMessage(content=state["left"].pop(0))]

    @vf.stop
    async def gave_up(self, state: Any) -> bool:
        return bool(state["trajectory"]) and state["trajectory"][-1]["completion"][-1]["content"] == "stop"


def solved(state: Any) -> float:
    return state["solved"] / len(state["info"]["questions"])


def open_drawer(drawer: str) -> str:
    """Look into a drawer."""
    return DRAWERS[drawer]


def found(completion: Any, answer: str) -> float:
    return float(completion[-1]["content"] == answer)


def compared(completions: list[Any]) -> list[float]:
    return [0.0 for _ in completions]


class Broken(vf.SingleTurnEnv):
    async def setup_state(self, state: Any) -> None:
        raise vf.InfraError("no sandbox")


def single(**others: Any) -> vf.Environment:
    return vf.SingleTurnEnv(
        dataset=rows(QUESTIONS[:12]),
        eval_dataset=rows(QUESTIONS[12:]),
        system_prompt="Follow the rules.",
        rubric=vf.Rubric(funcs=[correct, short], weights=[0.75, 0.25]),
        **others,
    )


def same_rows() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=rows(QUESTIONS), eval_dataset=rows(QUESTIONS), rubric=vf.Rubric(funcs=[found]))


def overlap() -> vf.Environment:
    held = rows(QUESTIONS[:4])
    return vf.SingleTurnEnv(dataset=rows(QUESTIONS), eval_dataset=held, rubric=vf.Rubric(funcs=[found]))


def turns(**others: Any) -> vf.Environment:
    pairs = [{"question": pair[0], "info": json.dumps({"questions": pair})} for pair in PAIRS]
    return Turns(dataset=Dataset.from_list(pairs), rubric=vf.Rubric(funcs=[solved]), timeout_seconds=0.001, **others)


def tools() -> vf.Environment:
    drawers = [{"question": f"open {name}", "answer": held} for name, held in DRAWERS.items()]
    return vf.ToolEnv(dataset=Dataset.from_list(drawers), tools=[open_drawer], rubric=vf.Rubric(funcs=[found]))


def group() -> vf.Environment:
    return vf.EnvGroup([single(), tools()], env_names=["words", "drawers"])


def form() -> vf.Environment:
    parser = vf.XMLParser(["answer"])
    rubric = vf.RubricGroup([vf.Rubric(funcs=[found]), vf.Rubric(funcs=[parser.get_format_reward_func()])])
    return vf.SingleTurnEnv(dataset=rows(QUESTIONS), parser=parser, rubric=rubric)


def judge() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=rows(QUESTIONS), rubric=vf.JudgeRubric())


def group_reward() -> vf.Environment:
    return vf.SingleTurnEnv(dataset=rows(QUESTIONS), rubric=vf.Rubric(funcs=[compared]))


def broken() -> vf.Environment:
    return Broken(dataset=rows(QUESTIONS), rubric=vf.Rubric(funcs=[found]))


def bare() -> vf.Environment:
    prompts = Dataset.from_list([{"prompt": "go on", "answer": ""}] * 4)
    return vf.SingleTurnEnv(dataset=prompts, rubric=vf.Rubric(funcs=[found]))


MAKERS = (single, same_rows, overlap, turns, tools, group, form, judge, group_reward, broken, bare)
KINDS = {make.__name__: make for make in MAKERS}


def load_environment(kind: str = "single", **others: Any) -> vf.Environment:
    return KINDS[kind](**others)
