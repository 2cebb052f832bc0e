"""Agents of well-known libraries, each as its users would write it: `programs.py NAME`, run by the Python of their own
environment. The address and the key come from the environment; what they print last is the score."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

QUESTION = "Where is the cat? Look, then answer with one word."
SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
FUNCTION: Any = {
    "type": "function",
    "function": {"name": "look", "description": "look at a place", "parameters": SCHEMA},
}


def look(at: str) -> str:
    """Look at a place.

    Args:
        at: the place
    """
    return f"the cat is at the {at}"


def openai_sync() -> str:
    from openai import OpenAI

    client = OpenAI()
    messages: list[Any] = [{"role": "system", "content": "be kind"}, {"role": "user", "content": QUESTION}]
    while True:
        stream = len(messages) > 2
        answer = client.chat.completions.create(model="policy", messages=messages, tools=[FUNCTION], stream=stream)
        if stream:
            return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
        message = answer.choices[0].message
        messages.append(message)
        for call in message.tool_calls or ():
            result = look(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not message.tool_calls:
            return message.content or ""


def openai_async() -> str:
    from openai import AsyncOpenAI

    async def run() -> str:
        client = AsyncOpenAI()
        tool: Any = {"type": "function", "strict": False, **FUNCTION["function"]}
        answer = await client.responses.create(model="policy", input=QUESTION, instructions="be kind", tools=[tool])
        given: Any = [
            {"type": "function_call_output", "call_id": item.call_id, "output": look(**json.loads(item.arguments))}
            for item in answer.output
            if item.type == "function_call"
        ]
        if not given:
            return answer.output_text
        more = await client.responses.create(
            model="policy", input=given, tools=[tool], instructions="be kind", previous_response_id=answer.id
        )
        return more.output_text

    return asyncio.run(run())


def anthropic_client() -> str:
    from anthropic import Anthropic

    client = Anthropic()
    tools: Any = [{"name": "look", "description": "look at a place", "input_schema": SCHEMA}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        with client.messages.stream(
            model="policy", max_tokens=200, system="be kind", messages=messages, tools=tools
        ) as stream:
            answer = stream.get_final_message()
        uses = [block for block in answer.content if block.type == "tool_use"]
        if not uses:
            return "".join(block.text for block in answer.content if block.type == "text")
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": look(**use.input)} for use in uses]
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]


def litellm_client() -> str:
    import litellm

    messages: list[Any] = [{"role": "system", "content": "be kind"}, {"role": "user", "content": QUESTION}]
    while True:
        message = litellm.completion(model="openai/policy", messages=messages, tools=[FUNCTION]).choices[0].message
        messages.append(message)
        for call in message.tool_calls or ():
            result = look(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not message.tool_calls:
            return message.content or ""


def openai_agents() -> str:
    from agents import Agent, Runner, function_tool, set_tracing_disabled

    set_tracing_disabled(True)
    agent = Agent(name="cat", instructions="be kind", model="policy", tools=[function_tool(look)])
    return str(Runner.run_sync(agent, QUESTION).final_output)


def langgraph() -> str:
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    agent = create_react_agent(ChatOpenAI(model="policy"), [look], prompt="be kind")
    return str(agent.invoke({"messages": [("user", QUESTION)]})["messages"][-1].content)


def pydantic_ai() -> str:
    from pydantic_ai import Agent

    agent = Agent("openai-chat:policy", instructions="be kind", tools=[look])
    return str(agent.run_sync(QUESTION).output)


def mini_swe_agent() -> str:
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel

    agent = DefaultAgent(
        LitellmModel(model_name="openai/policy", cost_tracking="ignore_errors"),
        LocalEnvironment(),
        system_template="You can use bash.",
        instance_template="{{task}} Submit with echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT.",
        step_limit=4,
    )
    return str(agent.run(QUESTION).get("submission"))


def smolagents() -> str:
    from smolagents import OpenAIModel, ToolCallingAgent, tool

    return str(ToolCallingAgent(tools=[tool(look)], model=OpenAIModel("policy")).run(QUESTION))


def dspy_program() -> str:
    import dspy

    dspy.configure(lm=dspy.LM("openai/policy", cache=False))
    return str(dspy.ChainOfThought("question -> answer")(question=QUESTION).answer)


AGENTS = {
    "openai": openai_sync,
    "openai-async": openai_async,
    "anthropic": anthropic_client,
    "litellm": litellm_client,
    "openai-agents": openai_agents,
    "langgraph": langgraph,
    "pydantic-ai": pydantic_ai,
    "mini-swe-agent": mini_swe_agent,
    "smolagents": smolagents,
    "dspy": dspy_program,
}


if __name__ == "__main__":
    said = AGENTS[sys.argv[1]]()
    print()
    print(json.dumps({"score": float("sea" in said), "feedback": f"it said {said}"}))
