"""Rollouts as files may hold them: settings that are not known, columns that do not fit, more tokens than are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from mingce.explain.account import account, book_of
from mingce.explain.example import typed
from mingce.record import tokens
from mingce.record.rollout import Rollout
from mingce.record.tokens import TokenTexts, added_texts
from mingce.sources.library import Library
from mingce.sources.rollouts import SIBLING_TOKENS, numbers, read_rollout
from mingce.sources.source import MAX_TOKENS
from mingce.specs.settings import AccountSettings

OLD, NEW = [-1.0, -1.0, -1.0], [-0.3, -1.0, -3.0]


def example(**settings: Any) -> Rollout:
    columns = {"rewards": [0.0, 0.0, 1.0], "values": [0.2, 0.3, 0.4], "old_log_probs": OLD, "new_log_probs": NEW}
    return typed(columns, **settings)


def without(rollout: Rollout, *names: str) -> Rollout:
    return replace(rollout, columns={name: x for name, x in rollout.columns.items() if name not in names})


def dump(path: Path, tokens: int, **columns: Any) -> Rollout:
    """One recorded row of so many tokens, the score on its last."""
    rewards = np.zeros((1, tokens), dtype=np.float32)
    rewards[0, -1] = 1.0
    ones = np.ones((1, tokens), dtype=np.float32)
    np.savez(path, response_mask=ones.astype(bool), scores=rewards, rewards=rewards, advantages=ones, **columns)
    source = next(iter(Library([path]).sources()))
    return read_rollout(source, source.ledger_steps()[0], 0, None)


def test_whether_a_token_is_clipped_is_recomputed_where_nobody_recorded_it() -> None:
    whole = example()
    recorded = [bool(x) for x in whole.columns["clipped"]]
    assert any(recorded)
    bare = without(whole, "clipped", "dual_clipped", "value_clipped")
    assert [bool(x) for x in book_of(bare).columns["clipped"]] == recorded
    for t, clipped in enumerate(recorded):
        said = {entry.id: entry for entry in account(bare, t, "engineer", "en")}
        same = {entry.id: entry for entry in account(whole, t, "engineer", "en")}
        assert said["policy"].meaning == same["policy"].meaning, clipped


def test_a_beta_that_adapts_is_not_guessed() -> None:
    config = {"kl.reward_coef": 0.05, "kl.adaptive": True}
    assert AccountSettings.from_config(config).beta is None
    assert AccountSettings.from_config(config, beta=0.2).beta == 0.2
    assert AccountSettings.from_config(config | {"kl.adaptive": False}).beta == 0.05


@pytest.mark.parametrize("kind", ["zzz", "full", "full+", None])
def test_a_kind_of_kl_that_is_not_known_is_left_as_recorded(kind: str | None) -> None:
    rollout = example()
    columns = {**rollout.columns, "kl": [0.1, 0.2, 0.3], "ref_log_probs": OLD}
    odd = replace(rollout, columns=columns, settings=replace(rollout.settings, kl_estimator=kind))
    assert book_of(odd).columns["kl"] == [0.1, 0.2, 0.3]


def test_an_estimator_that_lacks_its_number_of_the_row_still_has_an_account() -> None:
    rollout = replace(example(), row_inputs={})
    odd = replace(rollout, settings=replace(rollout.settings, estimator="remax"))
    assert account(odd, 0, "engineer", "en")


def test_of_a_cut_rollout_nothing_is_said_that_its_rest_would_change(tmp_path: Path) -> None:
    rollout = dump(tmp_path / "long.npz", MAX_TOKENS + 5)
    assert rollout.more_tokens
    assert rollout.info.score is None
    odd = replace(rollout, settings=replace(rollout.settings, estimator="reinforce_plus_plus", gamma=1.0))
    assert "advantages" not in book_of(odd).disagreeing


def test_a_long_answer_alone_in_its_group_has_an_account(tmp_path: Path) -> None:
    rollout = dump(tmp_path / "long.npz", SIBLING_TOKENS + 5, uid=np.array(["a"]))
    odd = replace(rollout, settings=replace(rollout.settings, estimator="grpo"))
    assert account(odd, 0, "engineer", "en")


def test_a_column_of_another_length_is_refused() -> None:
    stored = {"response_mask": [1, 1, 1], "values": [0.0] * 7}
    with pytest.raises(ValueError, match="values has 7 numbers for 3 tokens"):
        numbers(stored, float32=True)


def test_one_token_stands_for_no_megabytes(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    Tokenizer(models.WordLevel({"x" * 100_000: 0, "b": 1}, unk_token="b")).save(str(file))
    assert [token.text for token in TokenTexts(file).tokens([0, 1])] == ["⟨0⟩", "b"]


def test_tokens_that_add_nothing_take_no_longer_than_others() -> None:
    decoded = 0

    def decode(ids: list[int]) -> str:
        nonlocal decoded
        decoded += len(ids)
        return "".join("a" if i else "" for i in ids)

    ids = [1] + [0] * 3000 + [1]
    assert "".join(added_texts(decode, ids)) == "aa"
    assert decoded <= 2 * (tokens.LONGEST_CHARACTER + 2) * len(ids)
