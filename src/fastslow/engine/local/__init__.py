"""The policy in the processes of the run: trained by TRL and accelerate, sampled by transformers or vLLM."""
