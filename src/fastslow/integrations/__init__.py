"""fastslow inside other libraries."""
