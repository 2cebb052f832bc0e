def solve(problem, ask, tools):
    return ask(problem["question"])
