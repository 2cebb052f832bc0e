"""In place of torch, which SkyRL's JAX backend imports for type annotations only; it would bring gigabytes of CUDA."""

__version__ = "0"  # transformers takes it for too old, and does without
