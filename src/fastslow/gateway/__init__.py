"""The policy behind an address: OpenAI's and Anthropic's shapes, exact tokens, one key a rollout."""
