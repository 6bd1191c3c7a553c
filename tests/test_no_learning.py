"""Steps that teach nothing are told of, once, with the numbers; steps that do are not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from test_train import SMALL

from mingce.config import read_config
from mingce.record.run import Run
from mingce.sources.runs import RunSource
from mingce.training import report, start
from mingce.training.no_learning import WINDOW, Lookout, settings_without_learning, standstill

LEARNS = {
    "critic/score/mean": 0.5, "critic/score/max": 1.0, "critic/score/min": 0.0, "critic/rewards/mean": 0.45,
    "critic/rewards/max": 0.98, "critic/rewards/min": -0.1, "critic/kl_coeff": 0.02, "train/rows_without_signal": 0.25,
    "response_length/max": 9.0, "response_length/clip_ratio": 0.1, "actor/updates": 4.0, "actor/grad_norm": 0.3,
}  # fmt: skip
SAME = {"critic/score/mean": 0.1, "critic/score/max": 0.1, "critic/score/min": 0.1}
CONFIG = read_config(None, [])


pytestmark = pytest.mark.usefixtures("english")


@pytest.mark.parametrize(
    ("change", "cause", "number"),
    [
        ({"response_length/max": 0.0}, "empty", "3 steps"),
        ({"response_length/max": 1.0, "response_length/clip_ratio": 0.0}, "empty", "3 steps"),
        ({"response_length/clip_ratio": 1.0, **SAME}, "cut", f"{CONFIG.sampling.max_new_tokens} tokens"),
        (SAME, "scores", "scored 0.1"),
        ({"train/rows_without_signal": 1.0}, "advantages", f"now {CONFIG.samples_per_prompt}"),
        ({"critic/rewards/min": -3.0, "critic/kl_coeff": 7.0}, "kl", "β is now 7"),
        (
            {"critic/score/mean": 0.1, "critic/rewards/mean": -0.2, "critic/kl_coeff": 7.0},
            "kl_cost",
            "0.3 off the mean",
        ),
        ({"actor/grad_norm": 0.0}, "gradient", "exactly 0"),
    ],
)
def test_each_cause_is_told_with_its_numbers_when_several_steps_show_it(
    change: dict[str, float], cause: str, number: str
) -> None:
    stuck = LEARNS | change
    found = standstill([stuck] * WINDOW, CONFIG)
    assert found is not None
    assert found.cause == cause
    assert number in found.sentence
    assert standstill([stuck] * (WINDOW - 1), CONFIG) is None
    assert standstill([stuck] * (WINDOW - 1) + [LEARNS], CONFIG) is None


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"response_length/clip_ratio": 1.0},  # fixed lengths may be meant, and the scores differ
        {"response_length/max": 1.0, "response_length/clip_ratio": 1.0},  # max_new_tokens=1
        {"train/rows_without_signal": 0.99},
        {
            "critic/score/mean": 0.01,
            "critic/rewards/mean": -0.02,
        },  # few are right yet, and the KL costs next to nothing
        {"actor/grad_norm": 0.0, "actor/updates": 0.0},  # stopped early by target_kl
    ],
)
def test_steps_that_may_teach_are_not_told_of(change: dict[str, float]) -> None:
    assert standstill([LEARNS | change] * WINDOW, CONFIG) is None
    one_answer_a_step = [LEARNS | {name: float(i) for name in SAME} for i in range(WINDOW)]
    assert standstill(one_answer_a_step, CONFIG) is None, "the only answer of each step, of different scores"


def test_a_cause_is_told_once_in_a_run_also_when_it_goes_on() -> None:
    lookout = Lookout(CONFIG)
    said = [lookout.look(LEARNS | SAME) for _ in range(6)]
    assert [found is not None for found in said] == [False, False, True, False, False, False]
    resumed = Lookout(CONFIG, [LEARNS | SAME] * 4, ["scores"])
    assert resumed.look(LEARNS | SAME) is None
    elsewhere = Lookout(CONFIG, [LEARNS | SAME] * 2)
    assert elsewhere.look(LEARNS | SAME) is not None, "the steps before the resume count"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["actor.lr=0"], "actor.lr = 0"),
        (["credit.gamma=0"], "γ = 0"),
    ],
)
def test_settings_that_forbid_learning_are_told_at_the_start(words: list[str], what: str) -> None:
    config = read_config(None, words)
    (said,) = settings_without_learning(config)
    assert what in said
    assert any(warning and what in sentence for sentence, warning in report.remarks(config))
    assert settings_without_learning(CONFIG) == []
    assert settings_without_learning(read_config(None, ["estimator=grpo", "credit.gamma=0"])) == [], "it reads no γ"


def trained(root: Path, *words: str) -> tuple[Run, str]:
    said = io.StringIO()
    start.train(Console(file=said, width=400), None, [f"root={root}", "name=run", "threads=1", *words])
    return Run.open(root / "run", readonly=True), said.getvalue()


def reward(tmp_path: Path, value: str) -> str:
    (tmp_path / "reward.py").write_text(f"def compute_score(solution_str, **rest):\n    return {value}\n")
    return f"reward.function={tmp_path / 'reward.py'}"


@pytest.mark.parametrize(("estimator", "signal"), [("grpo", 1.0), ("gae", 0.0)])
def test_a_constant_reward_is_noticed_in_terminal_page_and_metrics(
    tmp_path: Path, estimator: str, signal: float
) -> None:
    words = (*SMALL, "steps=5", f"estimator={estimator}", "reward.task_weight=0", reward(tmp_path, "0.1"))
    run, said = trained(tmp_path, *words, "kl.reward_coef=0")
    assert said.count("scored 0.1") == 1
    events = [event for event in RunSource(run.path).events() if event.kind == "no-learning"]
    assert [(event.step, "scored 0.1" in event.why) for event in events] == [(3, True)]
    assert {line["train/rows_without_signal"] for line in run.metrics()[1:]} == {signal}

    again = io.StringIO()
    start.resume(Console(file=again, width=400), run.path, ["steps=8"])
    assert "scored 0.1" not in again.getvalue()


def test_a_kl_that_outweighs_the_score_is_noticed(tmp_path: Path) -> None:
    _, said = trained(tmp_path, *SMALL, "steps=5", "kl.reward_coef=1000", "actor.lr=0.001")
    assert "the KL outweighed the score" in said


LOSS = {"actor/kl_loss": 0.02, "critic/advantages/max": 3.0, "critic/advantages/min": -2.0}  # a distance of 0.2


@pytest.mark.parametrize(
    ("words", "change", "numbers"),
    [
        (["kl.loss_coef=11"], {}, ("about 2.2", "with 1 at most", "now 11")),
        (["kl.loss_coef=9"], {}, None),
        (["kl.loss_coef=11"], {"actor/kl_loss": 0.0}, None),
        (["kl.loss_coef=0.001"], {"actor/kl_loss": 50.0}, None),
        (["kl.loss_coef=2.5", "kl.loss_estimator=abs"], {}, ("about 2.5", "now 2.5")),
        (["estimator=dr_grpo", "samples_per_prompt=4", "kl.loss_coef=40"], {}, ("about 8", "with 3 at most")),
        (["estimator=dr_grpo", "samples_per_prompt=4", "kl.loss_coef=20"], {}, None),
    ],
)
def test_a_kl_in_the_loss_is_weighed_against_the_advantages(
    words: list[str], change: dict[str, float], numbers: tuple[str, ...] | None
) -> None:
    config = read_config(None, ["kl.reward_coef=0", *words])
    found = standstill([LEARNS | LOSS | change] * WINDOW, config)
    if numbers is None:
        assert found is None
    else:
        assert found is not None
        assert found.cause == "kl_loss"
        assert all(number in found.sentence for number in numbers), found.sentence
        assert standstill([LEARNS | LOSS | change] * (WINDOW - 1) + [LEARNS], config) is None


def test_a_kl_in_the_loss_that_outweighs_the_policy_loss_is_noticed(tmp_path: Path) -> None:
    _, said = trained(tmp_path, *SMALL, "steps=5", "kl.reward_coef=0", "kl.loss_coef=1000", "actor.lr=0.001")
    assert said.count("the KL in the loss outweighed the policy loss") == 1


@pytest.mark.parametrize(
    "words", [["steps=6"], ["recipes/counting.yaml", "steps=4"], ["recipes/grpo.yaml", "steps=4"]], ids=lambda w: w[0]
)
def test_runs_that_learn_are_not_told_of(tmp_path: Path, words: list[str]) -> None:
    recipes = Path(__file__).parents[1]
    recipe = next((recipes / word for word in words if "=" not in word), None)
    said = io.StringIO()
    overrides = [f"root={tmp_path}", "name=run", "validation.every=0", *(word for word in words if "=" in word)]
    start.train(Console(file=said, width=400), recipe, overrides)
    assert Run.open(tmp_path / "run", readonly=True).events("no-learning") == []


@pytest.mark.parametrize(
    ("words", "beta", "warned"),
    [
        ([], 0.01, False),
        (["sampling.max_new_tokens=300"], 0.16 / 300, False),
        (["sampling.max_new_tokens=300", "kl.reward_coef=0.01"], 0.01, True),
        (["sampling.max_new_tokens=4"], 0.01, False),
        (["kl.loss_coef=0.1"], 0.0, False),
        (["kl.reward_coef=0"], 0.0, False),
    ],
)
def test_what_the_kl_can_cost_is_said_at_the_start_and_the_default_goes_by_the_length(
    words: list[str], beta: float, warned: bool
) -> None:
    config = read_config(None, words)
    assert config.kl.reward_coef == pytest.approx(beta)
    said = report.remarks(config)
    assert any(warning and "is dear for answers of" in text for text, warning in said) == warned
    cost = beta * report.USUAL_DRIFT * config.sampling.max_new_tokens
    assert any(f"pays {cost:.2g} over {config.sampling.max_new_tokens} tokens" in text for text, _ in said) == (
        beta > 0
    )
