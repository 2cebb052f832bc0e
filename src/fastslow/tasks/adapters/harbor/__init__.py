"""Harbor's task folders as they are: what they say, the machine they need, an agent in it, and their tests."""
