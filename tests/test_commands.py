"""Opening a run, `mingce eval` and `mingce export`: the weights and the numbers are training's own; and mistakes."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file
from small_runs import quiet, said, save_chat_model, trained
from transformers import AutoModelForCausalLM, AutoTokenizer

from mingce.base.errors import DataError, MingceError, ModelError, RunError, SettingError, UnknownNameError
from mingce.base.numbers import show_count
from mingce.commands import evaluate, export
from mingce.models.loading import load_causal_lm
from mingce.models.value_head import ValueModel
from mingce.record import checkpoints
from mingce.record.run import Run
from mingce.record.targets import find_run, parse_step
from mingce.tasks.base import Example, Score
from mingce.training.evaluation import Answer, Evaluation
from mingce.training.opening import open_policy

pytestmark = pytest.mark.usefixtures("english")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of PPO with a critic, a checkpoint of each."""
    return trained(tmp_path_factory.mktemp("runs"), "small", "lang=en")


@pytest.fixture(scope="module")
def lora_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with adapters and without a critic."""
    return trained(
        tmp_path_factory.mktemp("runs"),
        "adapters",
        "task=counting",
        "model.lora.rank=4",
        "estimator=grpo",
        "actor.lr=1e-2",
    )


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("chat_model"))


def same_weights(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(p, tensors[f"model.{name}"]) for name, p in model.named_parameters() if p.requires_grad)


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_weights_are_the_checkpoints(run: Path) -> None:
    for step, asked in ((2, None), (1, 1)):
        opened = open_policy(run, step=asked)
        saved = checkpoints.load(Run.open(run, readonly=True), step)
        assert opened.step == step
        assert opened.critic is not None
        assert same_weights(opened.actor.model, saved.tensors["actor"])
        assert same_weights(opened.critic.model, saved.tensors["critic"])


def test_best_is_the_step_that_validated_best(run: Path) -> None:
    scores = {line["step"]: line["val/accuracy_sampled"] for line in Run.open(run, readonly=True).metrics()}
    assert open_policy(run, step="best").step == max((scores[step], step) for step in (1, 2))[1]


def test_step_0_is_the_model_it_started_from_and_has_no_critic(run: Path) -> None:
    opened = open_policy(run, step=0)
    assert (opened.step, opened.critic) == (0, None)
    tiny = load_causal_lm("tiny")
    assert all(torch.equal(a, b) for a, b in zip(opened.actor.model.parameters(), tiny.parameters(), strict=True))


def test_opening_writes_nothing_and_needs_neither_lock_nor_data(run: Path) -> None:
    before = sorted(path.name for path in run.iterdir())
    with Run.open(run):  # as while it is being trained
        opened = open_policy(run, overrides=["data.train=[/nowhere.jsonl]", "temperature=0.5"], critic=False)
    assert opened.actor.sampling.temperature == 0.5
    assert opened.critic is None
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_damaged_newest_checkpoint_gives_way_and_a_damaged_chosen_one_does_not(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    weights = copy / "checkpoints" / "step-000002" / "actor.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    notes: list[str] = []
    assert open_policy(copy, note=notes.append).step == 1
    assert len(notes) == 1
    assert "step-000002" in notes[0]
    with pytest.raises(RunError, match=r"step-000002 .* is damaged"):
        open_policy(copy, step=2)


def test_a_model_that_is_not_the_runs_is_refused(run: Path, chat_model: Path) -> None:
    for override in (f"model.path={chat_model}", "model.lora.rank=2"):
        with pytest.raises(RunError, match="another model than the one its run names"):
            open_policy(run, overrides=[override])


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("", r"has no config.yaml.* give one of its 1 runs, such as .*small"),
        ("smal", r"there is no run at .*; did you mean .*small\?"),
        ("small/checkpoints/step-000002", r"one checkpoint of a run; give the run, .*small, and --step 2\."),
        ("small/config.yaml", "is a file; give the directory"),
        ("small/ledger", "neither a run .* nor a model .*; give a directory that is one"),
    ],
)
def test_a_wrong_place_is_one_sentence(run: Path, place: str, says: str) -> None:
    with pytest.raises(RunError, match=says):
        find_run(run.parent / place)


def test_wrong_steps_and_models_are_one_sentence(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no checkpoint of step 7; there are: 1, 2"):
        find_run(run, 7)
    with pytest.raises(SettingError, match="tiny is a model; leave --step out"):
        find_run("tiny", 1)
    with pytest.raises(SettingError, match="--step must be the number of a step or 'best', but is 'last'"):
        parse_step("last")
    assert [parse_step(text) for text in (None, "best", "12")] == [None, "best", 12]
    empty = shutil.copytree(run, tmp_path / "empty", ignore=lambda *_: ["checkpoints"])
    with pytest.raises(RunError, match=r"no checkpoint yet; .*--step 0"):
        find_run(empty)
    with pytest.raises(ModelError, match="does not exist"):
        open_policy(tmp_path / "nowhere" / "at all")
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="no tokenizer"):
        open_policy(tmp_path)
    (empty / "config.yaml").write_text("steps: [", encoding="utf-8")
    with pytest.raises(RunError, match=r"config.yaml is not valid YAML"):
        open_policy(empty, step=0)


# ── eval ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def evaluated(where: str | Path, **options: object) -> dict[str, Any]:
    console = quiet()
    evaluate.run(console, str(where), as_json=True, **options)  # type: ignore[arg-type]
    found: dict[str, Any] = json.loads(said(console))
    return found


def test_eval_has_the_numbers_of_training(run: Path) -> None:
    logged = Run.open(run, readonly=True).metrics()
    for step in (0, 1, 2):
        found = evaluated(run, step=step, samples=1)
        assert found["accuracy_greedy"] == logged[step]["val/accuracy_greedy"]
        assert found["accuracy_sampled"] == found["pass_at_n"] == logged[step]["val/accuracy_sampled"]
        assert found["score_sampled"] == pytest.approx(logged[step]["val/score_mean"])
        assert (found["step"], found["prompts"], found["samples"]) == (step, 12, 1)


def test_eval_writes_every_answer_and_its_figures_are_theirs(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    found = evaluated(run, samples=3, examples=5, out=out)
    answers = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(answers) == 5 * (1 + 3)
    assert [answer["sample"] for answer in answers[:5]] == [None, 0, 1, 2, None]
    sampled = [answer for answer in answers if answer["sample"] is not None]
    assert found["accuracy_sampled"] == pytest.approx(statistics.fmean(answer["right"] for answer in sampled))
    assert found["length_sampled"] == pytest.approx(statistics.fmean(answer["tokens"] for answer in sampled))
    assert all((answer["response"] == answer["ground_truth"]) == answer["right"] for answer in answers)
    assert [path.name for path in tmp_path.iterdir()] == ["answers.jsonl"]
    one = tmp_path / "one.jsonl"
    evaluated(run, samples=1, examples=5, out=one)
    first_samples = [json.loads(line)["response"] for line in one.read_text(encoding="utf-8").splitlines()][1::2]
    assert first_samples == [answer["response"] for answer in answers if answer["sample"] == 0]


def test_figures_of_a_known_evaluation() -> None:
    def answer(right: bool, tokens: int = 4, reason: str = "stop") -> Answer:
        return Answer(Example("u", "p", "g", "d"), 0, "r", tokens, reason, Score(float(right), {}, ((0, 0.5),)), right)

    evaluation = Evaluation(
        [answer(True), answer(False)],
        [[answer(True), answer(False)], [answer(False), answer(False, 8, "length")]],
    )
    found = evaluation.figures()
    assert found["accuracy_greedy"] == 0.5
    assert found["accuracy_sampled"] == 0.25
    assert found["accuracy_sampled_error"] == pytest.approx(0.25)  # rates 0.5 and 0: deviation 0.354 over √2
    assert found["pass_at_n"] == 0.5
    assert found["score_sampled"] == 0.75
    assert found["length_sampled"] == 5
    assert found["cut_sampled"] == 0.25


def test_eval_prints_a_table_in_the_readers_language_and_answers_in_the_runs(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = quiet()
    evaluate.run(console, str(run), examples=6)
    shown = said(console)
    for words in ("(step 2): 6 held-out prompts of arithmetic", "greedy", "sampled (2 each)", "pass@2", "Is 0+53=53?"):
        assert words in shown
    monkeypatch.setenv("MINGCE_LANG", "zh")
    for overrides, prompt in (([], "Is 0+53=53?"), (["data.lang=zh"], "请问0+53=53？")):
        console = quiet()
        evaluate.run(console, str(run), examples=2, overrides=overrides)
        assert prompt in said(console)
        assert "准确率" in said(console)


def test_eval_on_a_data_file_asks_every_row(run: Path, tmp_path: Path) -> None:
    rows = [
        {"prompt": f"Is {n}+1={n + 1}?", "data_source": "mine", "reward_model": {"ground_truth": str(n + 1)}}
        for n in range(7)
    ]
    file, function = tmp_path / "mine.jsonl", tmp_path / "score.py"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    function.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
        "    return float(ground_truth in solution_str)\n",
        encoding="utf-8",
    )
    found = evaluated(run, task=str(file), overrides=[f"reward.function={function}"], samples=1, out=tmp_path / "o")
    assert (found["prompts"], found["task"]) == (7, "mine")
    asked = [json.loads(line)["prompt"] for line in (tmp_path / "o").read_text(encoding="utf-8").splitlines()]
    assert asked == [row["prompt"] for row in rows for _ in range(2)]
    with pytest.raises(DataError, match="no built-in scorer for data_source 'mine'"):
        evaluated(run, task=str(file))
    file.write_text('{"prompt": "Is 1+1=2?"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"no built-in scorer for data_source .mine."):
        evaluated(run, task=str(file))


def test_eval_of_another_task_leaves_the_runs_reward_function_behind(run: Path, tmp_path: Path) -> None:
    gone = "reward.function=/nowhere.py"
    assert evaluated(run, task="counting", examples=2, samples=1, overrides=[gone])["task"] == "counting"


def test_eval_mistakes(run: Path, tmp_path: Path) -> None:
    mistakes: list[tuple[type[MingceError], str, dict[str, object]]] = [
        (SettingError, "--examples must be at least 1", {"examples": 0}),
        (SettingError, "--samples must be at least 1", {"samples": 0}),
        (RunError, "cannot be written; give a file in a directory that exists", {"out": tmp_path / "no" / "a.jsonl"}),
        (RunError, "cannot be written", {"out": tmp_path}),
        (UnknownNameError, "unknown task 'arithmetics'; did you mean 'arithmetic'", {"task": "arithmetics"}),
        (UnknownNameError, "unknown setting 'stepz'", {"overrides": ["stepz=1"]}),
        (DataError, "there is no data file nowhere.jsonl", {"task": "nowhere.jsonl"}),
    ]
    for kind, says, options in mistakes:
        with pytest.raises(kind, match=says):
            evaluated(run, **options)


# ── export ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=torch.arange(3, 40)[None], use_cache=False).logits
    return found


def test_an_export_is_the_policy_and_the_critic(run: Path, tmp_path: Path) -> None:
    console = quiet()
    out = tmp_path / "deep" / "out"
    export.run(console, str(run), out, critic=True)
    assert "the policy of step 2 (167 k parameters) is in" in said(console)
    assert {path.name for path in out.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "critic",
    }
    opened = open_policy(run)
    again = AutoModelForCausalLM.from_pretrained(out)
    assert torch.equal(logits(again), logits(opened.actor.model))
    assert not torch.equal(logits(again), logits(load_causal_lm("tiny")))
    assert AutoTokenizer.from_pretrained(out).encode("Is 1+1=2?") == opened.actor.tokenizer.encode("Is 1+1=2?")
    rows = [[5, 6]], torch.tensor([[7, 8, 9]]), torch.ones(1, 3, dtype=torch.bool)
    assert opened.critic is not None
    with torch.no_grad():
        values, read = opened.critic.model.values(*rows, 0)[0], ValueModel.load(out / "critic").values(*rows, 0)[0]
    assert torch.equal(values, read)
    assert bool(values.abs().min() > 0)
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in out.rglob("*.safetensors"))
    assert evaluated(out, examples=4, samples=1, overrides=["lang=en"])["prompts"] == 4


def test_adapters_are_merged_or_alone(lora_run: Path, tmp_path: Path) -> None:
    opened = open_policy(lora_run)
    export.run(quiet(), str(lora_run), tmp_path / "merged")
    merged = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"))
    torch.testing.assert_close(merged, logits(opened.actor.model), atol=1e-4, rtol=1e-4)
    export.run(quiet(), str(lora_run), tmp_path / "alone", adapter=True)
    alone = peft.PeftModel.from_pretrained(load_causal_lm("tiny"), tmp_path / "alone")
    assert torch.equal(logits(alone), logits(opened.actor.model))
    assert not torch.allclose(merged, logits(load_causal_lm("tiny")), atol=1e-2)


def test_the_size_is_that_of_what_was_written(lora_run: Path, tmp_path: Path) -> None:
    console = quiet()
    export.run(console, str(lora_run), tmp_path / "merged")
    whole = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert f"({show_count(sum(p.numel() for p in whole.parameters()))} parameters)" in said(console)


def test_a_run_with_adapters_has_a_critic_with_adapters(tmp_path: Path) -> None:
    """Checkpoints hold adapters and the head; the exported critic has them merged."""
    path = trained(tmp_path, "both", "task=counting", "model.lora.rank=4", "actor.lr=1e-2")
    opened = open_policy(path, critic=True)
    assert opened.critic is not None
    learning = {name for name, p in opened.critic.model.named_parameters() if p.requires_grad}
    assert learning
    assert all("lora_" in name or name.startswith("head.") for name in learning)
    weights = [file for file in path.rglob("*.safetensors") if "critic" in str(file)]
    assert weights
    held = {name for file in weights for name in load_file(file) if name.startswith("model.")}
    assert {name.removeprefix("model.") for name in held} == learning
    export.run(quiet(), str(path), tmp_path / "out", critic=True)
    assert (tmp_path / "out" / "critic" / "value_head.safetensors").is_file()
    full = trained(tmp_path, "full", "task=counting", "model.lora.rank=4", "critic.lora=false")
    critic = open_policy(full, critic=True).critic
    assert critic is not None
    assert all(p.requires_grad for p in critic.model.parameters())


def test_export_mistakes_leave_nothing_behind(
    run: Path, lora_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    with pytest.raises(RunError, match="is already there; choose another --out"):
        export.run(quiet(), str(run), taken)
    with pytest.raises(SettingError, match="no LoRA adapters"):
        export.run(quiet(), str(run), tmp_path / "out", adapter=True)
    with pytest.raises(SettingError, match="no trained critic"):
        export.run(quiet(), str(lora_run), tmp_path / "out", critic=True)

    def breaks(self: object, directory: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ValueModel, "save", breaks)
    with pytest.raises(RunError, match=r"disk full while writing .*out"):
        export.run(quiet(), str(run), tmp_path / "out", critic=True)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
