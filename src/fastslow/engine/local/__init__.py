"""The policy in the processes of the run: TRL and accelerate train it, transformers or vLLM sample from it."""
