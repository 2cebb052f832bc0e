"""Environments of Prime Intellect's `verifiers` library, played by the policy."""
