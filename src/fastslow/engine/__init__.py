"""The seam to the policy."""
