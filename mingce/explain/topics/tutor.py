"""What has no numbers of an example: the tutor itself, mingce's use, and what training needs around the account."""

from __future__ import annotations

from mingce.explain.topic import register

register("save_dialogue")
register("pictures")
register("using_mingce")
register("optimizer")
register("engines")
register("starting_model")
register("evaluation")
