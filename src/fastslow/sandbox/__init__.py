"""Running code that a model wrote, and testing it: within limits and isolated as far as the machine allows."""

from fastslow.sandbox.grading import Stdio, run_tests
from fastslow.sandbox.runner import Outcome, Protections, SandboxError, protections, run_code

__all__ = ["Outcome", "Protections", "SandboxError", "Stdio", "protections", "run_code", "run_tests"]
