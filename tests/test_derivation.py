"""Derivations: every number is the float64 twins', every line an equation that holds; origins find what is there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from answer_numbers import equations, random_rollout
from derived_lines import assert_lines_hold

from mingce.algorithms import reference
from mingce.base.lang import LANGS
from mingce.base.numbers import number as shown
from mingce.explain import example
from mingce.explain.answer_view import markdown
from mingce.explain.derive import (
    Derivation,
    as_answer,
    compare_quantities,
    compare_settings,
    compare_tokens,
    derive,
    missing_for,
    origins,
)  # fmt: skip
from mingce.explain.derive.links import LINKS
from mingce.explain.derive.origins import MOST, read_number
from mingce.explain.derive.table import quantities, quantity_of
from mingce.record.rollout import Rollout, Sibling
from mingce.record.tokens import Token
from mingce.specs import AGGREGATIONS, ESTIMATORS, POLICY_LOSSES

SEEDS = range(40)


def every_derivation(rollout: Rollout, lang: str) -> Iterator[Derivation]:
    names = [
        *quantities(),
        "n_step(2)",
        "weight(3)",
        "mean(advantages)",
        "std(advantages)",
        "sum(rewards)",
        "var(returns)",
    ]
    for name in names:
        for t in (None, *range(len(rollout.tokens))):
            made = derive(rollout, name, t, lang)
            if made is not None:
                yield made


# ── every line holds ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_of_every_derivation_is_an_equation_that_holds(seed: int) -> None:
    count = 0
    for made in every_derivation(random_rollout(seed), LANGS[seed % 2]):
        assert_lines_hold(made)
        assert made.title
        assert made.reading
        assert "{" not in re.sub(r"_\{t\+[1lk]\}|\{l<n\}", "", made.formula + made.reading)
        count += 1
    assert count > 20


@pytest.mark.parametrize("seed", range(24))
def test_every_line_holds_between_the_numbers_of_a_ledger_that_is_wrong(seed: int) -> None:
    """One column of it was written by other code, or all of them."""
    rollout = random_rollout(seed)
    names = [name for name in rollout.columns if quantities().get(name) and name not in ("clipped", "dual_clipped")]
    for wrong in (names[seed % len(names)], None):
        columns = {
            name: [None if x is None else x + 0.37 * (t + 1) * (wrong in (name, None)) for t, x in enumerate(column)]
            if name in names and name != "value_clipped"
            else column
            for name, column in rollout.columns.items()
        }
        for made in every_derivation(replace(rollout, columns=columns), "en"):
            assert_lines_hold(made)


def by_estimator(name: str, seed: int) -> Rollout:
    """A random rollout whose credit is that estimator's; grouped ones get their samples."""
    base, spec = random_rollout(seed), ESTIMATORS[name]
    mask, settings = base.mask, replace(base.settings, estimator=name, n=2, k=2)
    columns = {
        key: column for key, column in base.columns.items() if key in ("response_mask", "rewards", "values", "scores")
    }
    columns["turn"] = [float(t // 3) for t in range(len(mask))]
    columns["attention_weights"] = [0.5 + t if m else None for t, m in enumerate(mask)]
    if not spec.needs_critic:
        columns.pop("values")
    inputs = {one: 0.25 for one in spec.row_inputs}
    rows: dict[str, list[Any]] = {one: [[x or 0.0 for x in column]] for one, column in columns.items()}
    rows |= {one: [x] for one, x in inputs.items()}
    siblings: tuple[Sibling, ...] = ()
    if spec.grouped:
        others: list[dict[str, list[Any]]] = [
            {"response_mask": [1, 1], "rewards": [0.1 * seed, x]} for x in (0.0, 1.0, 0.5)
        ]
        own = {"response_mask": mask, "rewards": list(columns["rewards"])}
        siblings = tuple(Sibling(row, None, "", one, 0.0) for row, one in enumerate([own, *others]))
        rows = {
            "rewards": [[x or 0.0 for x in one.columns["rewards"]] for one in siblings],
            "response_mask": [list(one.columns["response_mask"]) for one in siblings],
            "group": [0] * 4,
        }
    credit = spec.estimate(rows, settings.as_dict(), [base.bootstrap])
    columns["advantages"] = [a if m else None for a, m in zip(credit.advantages[0], mask, strict=True)]
    if credit.returns is not None:
        columns["returns"] = [a if m else None for a, m in zip(credit.returns[0], mask, strict=True)]
    return replace(base, columns=columns, settings=settings, siblings=siblings, row_inputs=inputs, whitening=None)


@pytest.mark.parametrize("name", [name for name, spec in ESTIMATORS.items() if spec.twin is not None])
@pytest.mark.parametrize("seed", range(6))
def test_the_advantage_of_every_estimator_is_derived_by_its_own_formula(name: str, seed: int) -> None:
    rollout = by_estimator(name, seed)
    for t in reference.chosen(rollout.mask):
        made = derive(rollout, "advantages", t, "en")
        assert made is not None
        assert made.formula.startswith(ESTIMATORS[name].formula)
        assert made.result == pytest.approx(rollout.columns["advantages"][t], abs=1e-12)
        assert_lines_hold(made)
        assert len(made.lines) > 1, made.lines
        assert made.lines[-1].endswith(shown(made.result)), made.lines[-1]
        assert {one.name for one in made.code} == {
            f"mingce.algorithms.advantage.{name}",
            f"mingce.specs.estimators.{name}",
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_are_the_twins(seed: int) -> None:
    rollout = random_rollout(seed)
    columns, settings, mask = rollout.columns, rollout.settings, rollout.mask
    rows = {name: [[0.0 if x is None else x for x in column]] for name, column in columns.items()}
    assert settings.gamma is not None
    assert settings.lam is not None
    assert settings.beta is not None
    credit = reference.gae(rows["rewards"], rows["values"], [mask], settings.gamma, settings.lam, [rollout.bootstrap])
    to_go = reference.monte_carlo(rows["rewards"], rows["values"], [mask], settings.gamma, [rollout.bootstrap])
    steps = reference.n_step(rows["rewards"], rows["values"], [mask], settings.gamma, 2, [rollout.bootstrap])
    expected = {
        "deltas": credit.deltas, "advantages": credit.advantages, "unrolled": credit.advantages,
        "returns": credit.returns,
        "mc_return": to_go.returns, "mc_advantage": to_go.advantages, "n_step(2)": steps.advantages,
    }  # fmt: skip
    for t in reference.chosen(mask):
        for name, column in expected.items():
            made = derive(rollout, name, t, "zh")
            assert made is not None
            assert made.result == pytest.approx(column[0][t], abs=1e-9), (name, t)
    for kind, function in (("sum", reference.masked_sum), ("mean", reference.masked_mean)):
        made = derive(rollout, f"{kind}(advantages)", None, "en")
        assert made is not None
        assert made.result == pytest.approx(function(credit.advantages, [mask]), abs=1e-9)
    for mode in AGGREGATIONS:
        made = derive(rollout, f"value_loss/{mode}", None, "en")
        assert made is not None
        assert made.result == pytest.approx(reference.agg_loss(rows["value_loss"], [mask], mode), abs=1e-9)
    shift = derive(rollout, "approx_kl", None, "zh")
    gaps = [columns["old_log_probs"][t] - columns["new_log_probs"][t] for t in reference.chosen(mask)]
    assert shift is not None
    assert shift.result == pytest.approx(math.fsum(gaps) / len(gaps), abs=1e-12)


@pytest.mark.parametrize("loss", [name for name, spec in POLICY_LOSSES.items() if spec.twin is not None])
def test_the_policy_loss_in_force_is_derived(loss: str) -> None:
    for seed in range(8):
        rollout = example.changed(random_rollout(seed), policy_loss=loss)
        for t in reference.chosen(rollout.mask):
            made = derive(rollout, "policy_loss", t, "en")
            assert made is not None
            assert made.formula == POLICY_LOSSES[loss].formula
            assert made.result == pytest.approx(rollout.columns["policy_loss"][t])
            if loss != "gspo":  # its line has clip(…) of one number
                assert_lines_hold(made)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs", "low_var_kl"])
def test_the_kl_kind_in_force_is_derived(kind: str) -> None:
    rollout = example.changed(example.worked(), kl_estimator=kind)
    for t in range(6):
        made = derive(rollout, "kl", t, "zh")
        assert made is not None
        assert made.result == pytest.approx(
            reference.kl_penalty(example.OLD_LOG_PROBS[t], example.OLD_LOG_PROBS[t] - example.KL[t], kind)
        )
        assert_lines_hold(made)


# ── the worked example ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_advantage_is_shown_all_the_way_from_the_last_token() -> None:
    made = derive(example.worked(), "advantages", 2, "zh")
    assert made is not None
    assert made.lines[0] == "γλ = 1·0.95 = 0.95"
    assert made.lines[-4:] == (
        "A_5 = δ_5 + γλ·0 = 0.395 + 0.95·0 = 0.395",
        "A_4 = δ_4 + γλ·A_5 = 0.13 + 0.95·0.395 = 0.5053",
        "A_3 = δ_3 + γλ·A_4 = 0.09 + 0.95·0.5053 = 0.57",
        "A_2 = δ_2 + γλ·A_3 = 0.055 + 0.95·0.57 = 0.5965",
    )
    assert made.result == pytest.approx(0.596488125)


def test_holes_are_stepped_over_and_said() -> None:
    worked = example.worked()
    columns = {
        name: [None if t == 3 else x for t, x in enumerate(worked.columns[name])] for name in ("scores", "values")
    }
    rollout = example.completed(
        replace(worked, columns={"response_mask": [1, 1, 1, 0, 1, 1], **columns}, whitening=None)
    )
    made = derive(rollout, "advantages", 2, "en")
    assert made is not None
    assert "A_2 = δ_2 + γλ·A_4" in made.lines[-1]
    assert "δ_2 = r_2 + γ·V(s_4) − V(s_2)" in "\n".join(made.lines)
    assert "Slots 3 were not chosen" in made.reading
    hole = derive(rollout, "advantages", 3, "zh")
    assert hole is not None
    assert hole.result is None
    assert not hole.lines


def test_a_number_of_the_ledger_that_is_wrong_is_named_and_not_used() -> None:
    worked = example.worked()
    wrong = [x + (0.1 if t == 2 else 0) for t, x in enumerate(worked.columns["advantages"])]
    made = derive(replace(worked, columns={**worked.columns, "advantages": wrong}), "advantages", 2, "en")
    assert made is not None
    assert made.result == pytest.approx(0.596488125)
    assert "The ledger records 0.6965" in made.reading


def test_what_is_missing_is_told() -> None:
    rollout = example.typed({"rewards": [0, 0, 1]})
    assert derive(rollout, "deltas", 0, "en") is None
    assert missing_for(rollout, "deltas") == ("values", "deltas")
    assert derive(rollout, "nonsense", 0, "en") is None
    assert derive(example.worked(), "advantages", 99, "en") is None
    assert quantity_of("n_step(99999999)") is None
    assert quantity_of("sum(nonsense)") is None


def test_a_long_row_is_derived_quickly_with_both_ends() -> None:
    n = 3000
    rollout = example.typed({"rewards": [0.001] * n, "values": [0.5] * n, "old_log_probs": [-0.1] * n})
    for t in (0, None, n - 1):
        for name in ("advantages", "returns", "unrolled", "mc_return", "sum(rewards)"):
            made = derive(rollout, name, t, "zh")
            assert made is not None
            assert len(made.lines) < 60
            assert sum(map(len, made.lines)) < 8000
    assert len(origins("0.9025", rollout, "zh")) <= MOST


def test_an_answer_has_the_tables_and_the_code() -> None:
    worked = example.worked()
    made = derive(worked, "returns", 1, "en")
    assert made is not None
    text = markdown(as_answer(made, worked, "en"))
    assert "R_1 = A_1 + V(s_1)" in text
    assert "mingce/algorithms/advantage.py:" in text
    assert all(holds for _, holds in equations(text))


# ── origins ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "quantity", "t"),
    [
        ("0.7738", "weight(5)", None), ("0.37525", "γλ·A_5", 4), ("0.5965", "advantages", 2),
        ("0.055", "deltas", 2), ("0.95", "lam", None), ("95%", "lam", None),
        ("3.2995", "sum(advantages)", None), ("0.5499", "mean(advantages)", None),
        ("0.0865", "std(advantages)", None), ("−1.7901", "whitened_advantages", 5),
        ("-1.7901", "whitened_advantages", 5), ("0.3056", "(γλ)^5·δ_5", 0), ("0.0450", "deltas", 1),
        ("0.1819", "advantages (λ = 0.5)", 2), ("0.8607", "probability", 2), ("0.975", "mc_return", 4),
        ("0.9025", "weight(2)", None), ("0.2553", "(V'(s_4) − R_4)²", 4),
    ],
)  # fmt: skip
def test_where_a_number_comes_from(text: str, quantity: str, t: int | None) -> None:
    found = origins(text, example.worked(), "zh")
    assert (found[0].quantity, found[0].t) == (quantity, t)
    for made in found:
        assert made.result is not None
        assert_lines_hold(made)


@pytest.mark.parametrize("seed", range(12))
def test_every_column_is_found_by_what_it_prints(seed: int) -> None:
    rollout = random_rollout(seed)
    for name in ("rewards", "deltas", "advantages", "returns"):
        for t in reference.chosen(rollout.mask):
            x = rollout.columns[name][t]
            wanted = read_number(shown(x))
            assert wanted is not None
            found = origins(shown(x), rollout, "en")
            assert all(made.result is not None and wanted.prints(made.result) for made in found)
            assert any(made.t == t and made.quantity == name for made in found) or len(found) >= 3


def test_rollouts_talked_of_before_are_searched_last() -> None:
    worked = example.worked()
    found = origins("0.108", worked, "en", others=[example.changed(worked, lam=0.5, gamma=0.9)])
    assert found[0].quantity == "advantages (λ = 0.5)"
    other = example.typed({"rewards": [0, 0.123], "values": [0.4567, 0.5]})
    found = origins("0.4567", worked, "zh", others=[other])
    assert found[0].quantity == "values"
    assert "前面说过" in found[0].reading
    assert origins("what?", worked, "zh") == []
    assert origins("123456.789", worked, "zh") == []


# ── comparisons ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lang", LANGS)
def test_other_settings_side_by_side(lang: str) -> None:
    worked = example.worked()
    answer = compare_settings(worked, example.changed(worked, lam=0.5), "advantages", lang)
    assert [row[4] for row in answer.tables[0].rows] == ["−0.5131", "−0.4757", "−0.4146", "−0.3162", "−0.1778", "0"]
    assert "t = 5" in answer.text
    assert all(holds for _, holds in equations("\n".join(answer.lines)))
    same = compare_settings(worked, example.changed(worked, lam=0.5), "deltas", lang)
    assert {row[4] for row in same.tables[0].rows} == {"0"}
    assert "λ" in same.text
    total = compare_settings(worked, example.changed(worked, beta=0.5), "sum(rewards)", lang)
    assert "0.955" in total.text
    assert "0.775" in total.text


def test_what_depends_on_a_setting_but_does_not_move_is_not_said_to_ignore_it() -> None:
    worked = example.worked()
    answer = compare_settings(worked, example.changed(worked, clip_low=0.3, clip_high=0.3), "policy_loss", "en")
    assert "does depend" in answer.text


@pytest.mark.parametrize("lang", LANGS)
def test_tokens_side_by_side(lang: str) -> None:
    answer = compare_tokens(example.worked(), "advantages", [2, 5], lang)
    assert [row[-1] for row in answer.tables[0].rows] == ["0.5965", "0.395"]
    assert "0.2015" in answer.text
    assert "γλ·A_{t+1}" in answer.text
    assert compare_tokens(example.typed({"rewards": [1.0]}), "advantages", [0], lang).text


@pytest.mark.parametrize("link", LINKS, ids=lambda link: f"{link.a}-{link.b}")
@pytest.mark.parametrize("lang", LANGS)
def test_two_columns_side_by_side(link: Any, lang: str) -> None:
    for seed in range(4):
        rollout = random_rollout(seed)
        answer = compare_quantities(rollout, link.a, link.b, reference.chosen(rollout.mask)[0], lang)
        assert answer.title
        assert all(holds for _, holds in equations("\n".join(answer.lines)))
        assert "{" not in re.sub(r"\{t\+[1lk]\}", "", answer.text)


@pytest.mark.parametrize("seed", range(10))
def test_comparisons_of_random_rollouts_have_no_wrong_number(seed: int) -> None:
    rollout = random_rollout(seed)
    slots = reference.chosen(rollout.mask)
    other = example.changed(rollout, lam=0.3, gamma=0.9, beta=0.2)
    for name in ("rewards", "deltas", "advantages", "returns", "mc_return", "policy_loss"):
        for answer in (compare_settings(rollout, other, name, "zh"), compare_tokens(rollout, name, slots, "en")):
            assert all(holds for _, holds in equations("\n".join(answer.lines))), answer.lines


def test_hostile_texts_are_bounded() -> None:
    worked = example.worked()
    for text in ("9" * 5000, "-" * 5000, "1e999", "0." + "1" * 5000, "", "×10⁻⁻⁻", "1e-99", "．．．", "\x00"):
        origins(text, worked, "zh")
    tokens = [Token(t, "{x}{0}", t) for t in range(6)]
    made = derive(replace(worked, tokens=tokens), "advantages", 1, "en")
    assert made is not None
    assert "{x}{0}" in made.reading
