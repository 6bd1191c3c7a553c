"""Rewards as people have them: several functions, TRL's signature, async ones, and a judge behind an address."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_model import FakeModel, raw
from scored import score_all
from small_runs import quiet, trained

from mingce.base.errors import RewardError, RunError, SettingError
from mingce.config import JudgeConfig, read_config
from mingce.engine.local import build_roles
from mingce.tasks import judge
from mingce.tasks.base import Example, Score
from mingce.tasks.function import FunctionScorer
from mingce.tasks.judge import JudgeModel, grade_in
from mingce.training import start

CHAT = [{"role": "user", "content": "1+1?"}]
EXAMPLES = [
    Example("a", CHAT, "2", "sums", {"answer": "2", "level": 1}),
    Example("b", CHAT, "3", "sums", {"answer": "3", "level": 2}),
    Example("c", "text", "4", "plain", {"answer": "4"}),
]
ANSWERS = ["2", "nothing", "4"]

TRL = """
def format_reward(completions, **kwargs):
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [1.0 if text.isdigit() else 0.0 for text in texts]

def accuracy(prompts, completions, answer, level, ground_truth, data_source, log_metric, log_extra, **kwargs):
    assert len(prompts) == len(completions) == len(answer) == len(level) == 3 or len(completions) == 1
    log_metric("batch", len(completions))
    log_extra("texts", ["not", "a", "number"][: len(completions)])
    log_extra("levels", [float(one or 0) for one in level])
    assert answer == ground_truth
    says = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    rows = zip(data_source, says, answer)
    return [None if source == "plain" else float(text == right) for source, text, right in rows]

def few(completions, answer):
    return [0.5] * len(completions)

def short(completions, **kwargs):
    return [1.0]

def asks(completions, solution, **kwargs):
    return [1.0] * len(completions)

def near(completions, answr, **kwargs):
    return [1.0] * len(completions)

def breaks(completions, **kwargs):
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [float(int(text)) for text in texts]

def tokens(completion_ids, **kwargs):
    return [float(len(ids)) for ids in completion_ids]

async def slowly(completions, **kwargs):
    import asyncio
    await asyncio.sleep(0)
    return [0.25] * len(completions)
"""


def test_a_function_of_trls_kind_gets_the_batch_with_its_columns(tmp_path: Path) -> None:
    (tmp_path / "trl.py").write_text(TRL)

    def scores(name: str, **settings: object) -> list[Score]:
        return score_all(FunctionScorer(f"{tmp_path}/trl.py:{name}"), EXAMPLES, ANSWERS, workers=2, **settings)

    assert [score.score for score in scores("format_reward")] == [1.0, 0.0, 1.0]
    first, second, third = scores("accuracy")
    assert (first.score, second.score) == (1.0, 0.0)
    assert dict(first.parts) == {"batch": 3.0, "levels": 1.0}
    assert not third.judged, "None: not for this function to judge"
    assert scores("few") == [Score(0.5)] * 3, "a function without **kwargs gets what it takes"
    assert scores("slowly") == [Score(0.25)] * 3
    for name, why in {
        "short": "line .* returned 1 rewards for 3 answers",
        "asks": "asks for 'solution', which is no column of the data; there are answer, ",
        "near": "did you mean 'answer'?",
        "breaks": "the reward of b failed .trl.py, line 30: ValueError: invalid literal",
    }.items():
        with pytest.raises(RewardError, match=why):
            scores(name)
    assert [score.total for score in scores("breaks", on_error=-1.0)] == [2.0, -1.0, 4.0], "only the row that fails"
    with pytest.raises(RewardError, match=r"no function 'compute_score'; did you mean '.*:format_reward' or '.*:few'"):
        FunctionScorer.loaded(f"{tmp_path}/trl.py")
    (tmp_path / "only.py").write_text("def any_name(completions, **columns): return [2.0 for _ in completions]")
    assert FunctionScorer(f"{tmp_path}/only.py")(EXAMPLES[0], "x") == Score(2.0), "the one function needs no name"


ASYNC = """
import asyncio

met = 0

async def compute_score(data_source, solution_str, ground_truth, extra_info):
    global met
    met += 1
    while met < 3:  # all three answers must be under way at once
        await asyncio.sleep(0.001)
    if solution_str == "nothing":
        raise KeyError("nothing")
    return {"score": float(solution_str == ground_truth), "level": extra_info.get("level", 0)}

class Object:
    async def __call__(self, **rest):
        await asyncio.sleep(60 if rest["solution_str"] == "4" else 0)
        return 1.0

late = Object()
"""


def test_an_async_function_scores_the_answers_of_a_batch_at_once(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(ASYNC)
    scorer = FunctionScorer(f"{tmp_path}/later.py")
    scores = score_all(scorer, EXAMPLES, ANSWERS, workers=1, on_error=-1.0)
    assert [score.score for score in scores] == [1.0, -1.0, 1.0]
    assert scores[0].parts["level"] == 1
    with pytest.raises(RewardError, match=r"the reward of b failed .later.py, line 12: KeyError"):
        score_all(scorer, EXAMPLES, ANSWERS, workers=1)
    late = FunctionScorer(f"{tmp_path}/later.py:late")
    with pytest.raises(RewardError, match=r"the reward of c failed .it took longer than the time limit of 0\.5 s"):
        score_all(late, EXAMPLES, ANSWERS, workers=1, time_limit=0.5)


VERL = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    return float(str(extra_info["a"] + extra_info["b"]) in solution_str)

def score(solution_str, **rest):
    return {"score": -float(len(solution_str)), "length": len(solution_str)}
"""


def test_several_functions_pay_by_their_weights_and_are_logged_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(VERL)
    (tmp_path / "b.py").write_text(VERL)
    (tmp_path / "trl.py").write_text(TRL)
    files = [f"{tmp_path}/{name}" for name in ("a.py", "b.py:score", "trl.py:format_reward", "trl.py:tokens")]
    weights = "reward.function_weight=[1,0.1,-2,0]"
    settings = (f"reward.function=[{','.join(files)}]", weights, "reward.task_weight=0.5", "lang=en")
    run = trained(tmp_path, "several", *settings, "audit.every=1")
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()[1:]):
        parts = [line[f"score/{name}"] for name in ("task", "a", "score", "format_reward")]
        paid = sum(weight * part for weight, part in zip((0.5, 1, 0.1, -2), parts, strict=True))
        assert line["critic/score/mean"] == pytest.approx(paid, abs=1e-5)
        assert line["score/tokens"] == line["response_length/mean"]
        assert line["score/score/length"] == -line["score/score"]
    start.resume(quiet(), run, ["steps=3"])
    (tmp_path / "b.py").write_text(VERL + "\n# changed")
    with pytest.raises(RunError, match="function 2"):
        start.resume(quiet(), run, ["steps=4"], trust=True)


def test_data_files_with_several_functions_are_judged_by_the_first_that_judges(tmp_path: Path) -> None:
    (tmp_path / "trl.py").write_text(TRL)
    data = tmp_path / "d.jsonl"
    rows = [{"prompt": "x", "answer": "2", "level": 0, "data_source": s} for s in ("sums", "plain") * 20]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    functions = f"reward.function=[{tmp_path}/trl.py:accuracy,{tmp_path}/trl.py:format_reward]"
    roles = build_roles(read_config(None, [functions, f"data.train={data}"]))
    try:
        ask = [Example("s", "x", "2", "sums", rows[0]), Example("p", "x", "2", "plain", rows[1])] * 2
        (one,) = roles.judge.right(ask[:1], ["2"], [0])
        assert one
        assert roles.judge.right(ask[:1], ["3"], [0]) == [False]
        assert roles.judge.right(ask[1:2], ["3"], [0]) == [True], "the first does not judge it, the second says yes"
        scored = roles.reward.scorer.score(ask[1:2], ["3"], [0])[0]
        assert scored.score == 1.0
        assert "accuracy" not in scored.parts
    finally:
        roles.close()


def test_a_judge_behind_an_address_grades_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "PAUSE", 0.0)
    with FakeModel("Right enough.\n**Score: 7.5**", models="grader") as model:
        config = JudgeConfig(model.url, best=10, at_once=1)
        judged = JudgeModel(config, 5.0, "stop")
        judged.start()
        assert judged.score(EXAMPLES[:2], ["two {prompt}", "3"]) == [Score(0.75)] * 2
        asked = model.requests[0]["messages"][-1]["content"]
        assert model.requests[0]["model"] == "grader"
        assert "user: 1+1?" in asked
        assert "two {prompt}" in asked, "braces of an answer are no places"
        assert "to 10 (fully right)" in asked
    with FakeModel("no grade", raw(b"{}", 500), "Score: 11", "Score: 3") as model:
        config = JudgeConfig(model.url, "m", best=10, at_once=1)
        with pytest.raises(RewardError, match=r"the reward of a failed .the judge's reply ends in no grade"):
            JudgeModel(config, 5.0, "stop").score(EXAMPLES[:1], ["2"])
        assert len(model.requests) == judge.TRIES
        assert JudgeModel(config, 5.0, 0.0).score(EXAMPLES[:1], ["2"])[0].score == pytest.approx(0.3)
    with FakeModel(raw(b"no", 401)) as model:
        scores = JudgeModel(JudgeConfig(model.url, "m"), 5.0, -1.0).score(EXAMPLES[:1], ["2"])
        assert (scores[0].score, len(model.requests)) == (-1.0, 1), "a refusal is not asked again"
    with FakeModel(
        raw(b"later", 429, **{"Retry-After": "0"}), raw(b"later", 503), raw(b"", 429), raw(b"", 503), "Score: 6"
    ) as model:
        options = {"temperature": 0, "max_tokens": 4096}
        busy = JudgeModel(JudgeConfig(model.url, "m", options=options), 5.0, "stop")
        assert busy.score(EXAMPLES[:1], ["2"]) == [Score(0.6)], "one that is busy is waited for"
        assert len(model.requests) == 5 > judge.TRIES
        assert (model.requests[0]["temperature"], model.requests[0]["max_tokens"]) == (0, 4096)
    with FakeModel(raw(b"tomorrow", 429, **{"Retry-After": "86400"})) as model:
        with pytest.raises(RewardError, match=r"429.*set reward\.on_error"):
            JudgeModel(JudgeConfig(model.url, "m"), 5.0, "stop").score(EXAMPLES[:1], ["2"])
        assert len(model.requests) == 1, "longer than anybody waits"
    (tmp_path / "ask.txt").write_text("Is {response} right?")
    with FakeModel("1") as model:
        asks = JudgeModel(JudgeConfig(model.url, "m", str(tmp_path / "ask.txt"), best=1), 5.0, "stop")
        assert asks.score(EXAMPLES[:1], ["2"]) == [Score(1.0)]
        assert model.requests[0]["messages"] == [{"role": "user", "content": "Is 2 right?"}]
    (tmp_path / "blind.txt").write_text("Is it right?")
    with pytest.raises(SettingError, match=r"has no \{response\}"):
        JudgeModel(JudgeConfig("http://127.0.0.1:9/v1", "m", str(tmp_path / "blind.txt")), 5.0, "stop")
    with pytest.raises(SettingError, match=r"^reward\.judge\.url .*'localhost'"):
        JudgeModel(JudgeConfig("localhost"), 5.0, "stop")


@pytest.mark.parametrize(
    ("reply", "grade"),
    [
        ("Score: 7", 7.0), ('{"reason": "fine", "score": 7}', 7.0), ("{'Score': 6.5}", 6.5), ("Rating: [[5]]", 5.0),
        ("<think>Score: 3</think>\n**Score:** 8/10", 8.0), ("score：8 分", 8.0), ("Score: 3\nScore: 4.5/10", 4.5),
        ("so \\boxed{6}", 6.0), ("9", 9.0), (" 10. ", 10.0), ("Score: none", None), ("Score: 12", None),
        ("Score: -1", None), ("it has 5 faults", None),
    ],
)  # fmt: skip
def test_a_grade_is_read_where_the_reply_gives_it(reply: str, grade: float | None) -> None:
    assert grade_in(reply, 10) == grade


def test_a_run_is_trained_by_a_judge_and_a_strangers_address_is_asked_about(tmp_path: Path) -> None:
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n}+1="}) + "\n" for n in range(40)))
    with FakeModel("Score: 10") as model:
        run = trained(tmp_path, "judged", f"data.train={data}", f"reward.judge.url={model.url}", "steps=1")
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        assert (last["critic/score/mean"], last["val/accuracy_sampled"]) == (1.0, 1.0)
        held_out, rollouts = 4, 8
        assert len(model.requests) == rollouts + 2 * 2 * held_out, "nothing is graded twice"
        config = (run / "config.yaml").read_text()
        (run / "config.yaml").write_text(config.replace(model.url, "http://127.0.0.1:9/v1"))
        with pytest.raises(RunError, match=r"reward\.judge\.url = http://127\.0\.0\.1:9/v1"):
            start.resume(quiet(), run, ["steps=2"])
