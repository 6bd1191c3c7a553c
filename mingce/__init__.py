"""mingce 明策: PPO for language models with every token's account open."""

__version__ = "0.1.0"
