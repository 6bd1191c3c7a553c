"""The column table holds together: names, formulae, functions, two languages, and the page generated from it."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mingce.base.errors import UnknownNameError
from mingce.base.texts import named, texts
from mingce.columns import ALIASES, COLUMNS, DERIVED, SETTINGS, TOKEN_COLUMNS, Column, column
from mingce.metrics import METRICS

ROOT = Path(__file__).parent.parent
DESIGN = [
    "token_ids",
    "response_mask",
    "rollout_log_probs",
    "old_log_probs",
    "entropy",
    "ref_log_probs",
    "scores",
    "kl",
    "rewards",
    "values",
    "deltas",
    "advantages",
    "returns",
    "whitened_advantages",
    "new_log_probs",
    "ratio",
    "clipped",
    "policy_loss",
    "new_values",
    "value_clipped",
    "value_loss",
    "uid",
    "group",
    "data_source",
    "prompt",
    "prompt_ids",
    "response",
    "finish_reason",
    "score_parts",
    "step",
    "policy_version",
    "temperature",
]


def test_the_table_has_every_column_of_the_design() -> None:
    assert set(DESIGN) <= set(COLUMNS)


@pytest.mark.parametrize("known", COLUMNS.values(), ids=lambda c: c.name)
def test_a_column_is_complete(known: Column) -> None:
    assert known.dtype in ("int64", "bool", "float32") if known.alignment != "row" else known.dtype
    for one_sentence in (known.zh, known.en):
        assert one_sentence.endswith(("。", "."))
    assert re.search(r"[\u4e00-\u9fff]", known.zh)
    assert not re.search(r"[\u4e00-\u9fff]", known.en + known.long_en)
    assert re.search(r"[\u4e00-\u9fff]", known.long_zh)
    assert set(known.inputs) | set(known.optional) <= set(TOKEN_COLUMNS)


def test_every_column_has_a_paragraph_and_no_paragraph_is_left_over() -> None:
    for lang in ("zh", "en"):
        assert {key for key in texts("columns", lang) if "." not in key} == {"", "settings", *COLUMNS, *DERIVED}
        assert list(named(texts("columns", lang)["settings"])) == list(SETTINGS)


def test_inputs_come_before_the_columns_made_of_them() -> None:
    """The table is in the order in which it can be filled, so there is no cycle."""
    seen: set[str] = set()
    for known in COLUMNS.values():
        assert set(known.inputs) | set(known.optional) <= seen
        seen.add(known.name)


@pytest.mark.parametrize("known", [c for c in COLUMNS.values() if c.is_computed], ids=lambda c: c.name)
def test_a_computed_column_names_a_real_function_and_its_inputs_stand_in_the_formula(known: Column) -> None:
    module, _, name = known.source.partition(":")
    assert inspect.isfunction(getattr(importlib.import_module(module), name))
    stands_for = {"advantages": ("A_t", "Â_t", "ρ_t"), "new_log_probs": ("log π(a_t)", "π(a|s_t)")}
    for name in known.inputs:
        symbols = stands_for.get(name, (COLUMNS[name].symbol,))
        assert any(symbol in known.formula for symbol in symbols), f"{name} is not in {known.formula}"


def test_a_measured_column_names_the_role_that_measures_it() -> None:
    measured = {known.source.partition(".")[0] for known in COLUMNS.values() if not known.is_computed}
    assert measured == {"actor", "critic", "data", "reference", "reward", "trainer"}
    assert COLUMNS["values"].source == "critic.values"


def test_symbols_are_unique() -> None:
    symbols = [known.symbol for known in COLUMNS.values()] + [setting.symbol for setting in SETTINGS.values()]
    assert len(set(symbols)) == len(symbols)


def test_an_alias_means_one_column_and_hides_none() -> None:
    aliases = [alias for known in COLUMNS.values() for alias in known.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(COLUMNS)
    assert ALIASES["token_level_scores"] == "scores"
    assert ALIASES["token_level_rewards"] == "rewards"
    assert ALIASES["ref_log_prob"] == "ref_log_probs"
    assert column("eos_mask").name == "response_mask"


def test_an_unknown_column_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'advantages'"):
        column("advantage")


def test_state_aligned_columns_are_the_critics() -> None:
    state = {name for name, known in COLUMNS.items() if known.alignment == "state"}
    assert state == {"values", "returns", "new_values", "value_clipped", "value_loss"}


def test_the_table_and_the_twins_need_no_torch() -> None:
    code = "import sys, mingce.columns, mingce.algorithms.reference, mingce.cli; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


WORDS = re.compile(r"(?<![\w_])(?!softmax|logits|clip|score|exp|log|max|min|decode|stop|length|error)[a-z]{3,}", re.I)


@pytest.mark.parametrize("column", COLUMNS.values(), ids=lambda column: column.name)
def test_a_formula_with_words_has_them_in_chinese(column: Column) -> None:
    if WORDS.search(column.formula):
        assert re.search("[\u4e00-\u9fff]", column.formula_zh), column.formula


def test_no_chinese_formula_is_left_over() -> None:
    parts = {key for key in texts("columns", "zh") if "." in key}
    assert parts <= {f"{name}.formula" for name in COLUMNS}


def test_every_reduction_is_told_in_chinese() -> None:
    assert all(re.search("[\u4e00-\u9fff]", metric.reduction_zh) for metric in METRICS)
