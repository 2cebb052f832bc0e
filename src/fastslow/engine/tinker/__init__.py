"""The engine behind the Tinker API: a policy that a server samples and trains."""
