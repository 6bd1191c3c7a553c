"""The settings of a run: typed, documented in two languages, overridable as `key=value`.

    table     the settings and their defaults; the reference page is generated from it
    reading   defaults, then a recipe (YAML), then overrides: `read_config(recipe, ["lam=0.9", "critic.lr=1e-3"])`
    checks    names and ranges, and settings that contradict each other
    bounds    what no machine could follow

A new setting is a line in the table and a line in each of mingce/texts/settings.{zh,en}.md.
"""

from __future__ import annotations

from mingce.config.checks import check_ranges, check_specs
from mingce.config.reading import as_values, config_of, merged_config, read_config
from mingce.config.table import (
    AgentConfig,
    Config,
    JudgeConfig,
    LearnerConfig,
    RayConfig,
    RewardConfig,
    describe,
    settings,
    value_of,
)

__all__ = [
    "AgentConfig",
    "Config",
    "JudgeConfig",
    "LearnerConfig",
    "RayConfig",
    "RewardConfig",
    "as_values",
    "check_ranges",
    "check_specs",
    "config_of",
    "describe",
    "merged_config",
    "read_config",
    "settings",
    "value_of",
]
