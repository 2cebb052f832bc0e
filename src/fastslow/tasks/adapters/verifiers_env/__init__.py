"""Environments of Prime Intellect's `verifiers` library, played by the policy in lockstep with all the others."""
