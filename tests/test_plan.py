"""`mingce plan`: what follows from counts and bytes, its advice, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from plan_models import ROOT, TINY
from plan_tables import parse, refreshed
from rich.console import Console

from mingce.base.errors import MingceError
from mingce.base.numbers import show_bytes, show_seconds
from mingce.commands.plan import run
from mingce.plan import memory, traffic
from mingce.plan.families import shape_of
from mingce.plan.fit import fit
from mingce.plan.growth import turning_point
from mingce.plan.hardware import GPUS, Cluster
from mingce.plan.job import read_job
from mingce.plan.plan import Request, make_plan
from mingce.plan.presets import find_shape
from mingce.plan.speed import step_speed
from mingce.plan.units import parse_bytes, parse_rate
from mingce.specs import ESTIMATORS, Estimator

TINY_MAMBA = {key: TINY[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers")}

# ── what follows ─────────────────────────────────────────────────────────────────────────────────────────────────────

LARGE = [
    "prompts_per_step=512",
    "samples_per_prompt=8",
    "minibatch_rollouts=1024",
    "critic.minibatch_rollouts=1024",
    "sampling.max_new_tokens=2048",
    "sampling.max_rows=32",
    "model.dtype=bfloat16",
]


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=lambda spec: spec.name)
def test_a_critic_is_planned_where_the_estimator_reads_values(estimator: Estimator) -> None:
    job = read_job(None, [f"estimator={estimator.name}"], model="7b")
    assert (job.critic is not None) == estimator.needs_critic


def test_a_recipe_says_which_models_there_are() -> None:
    grpo = read_job(ROOT / "recipes/grpo.yaml", model="7b")
    assert (grpo.critic, grpo.rollouts, grpo.expected.prompt) == (None, 256, 1024)
    assert grpo.reference is not None
    alone = read_job(ROOT / "recipes/grpo.yaml", ["kl.reward_coef=0"], model="7b")
    assert alone.reference is None
    adapted = read_job(None, ["model.lora.rank=8"], model="7b")
    assert adapted.reference is None
    assert adapted.shares_reference
    assert adapted.critic is not None
    assert adapted.critic.has_adapters
    whole = read_job(None, ["model.lora.rank=8", "critic.lora=false"], model="7b").critic
    assert whole is not None
    assert not whole.has_adapters
    smollm = read_job(ROOT / "recipes/smollm2_sums.yaml", ["data.max_prompt_tokens=256"])
    assert (smollm.actor.shape.name, smollm.longest.row) == ("smollm2-135m", 280)


def test_one_process_needs_no_copies_and_no_wires() -> None:
    job, cluster = read_job(None, ["model.dtype=float32"]), Cluster(GPUS["h100"], 1)
    (alone,) = memory.pools(job, cluster)
    assert "sampler" not in alone.resident
    assert all(not parts.get("gathered") for stage, parts in alone.stages.items() if "update" not in stage)
    assert traffic.flows(job, cluster) == []


def test_adapters_refresh_only_what_learns() -> None:
    cluster = Cluster(GPUS["h100"], 8)

    def refresh(rank: int) -> float:
        job = read_job(None, [f"model.lora.rank={rank}"], model="7b")
        return next(flow.bytes for flow in traffic.flows(job, cluster) if flow.kind == "refresh")

    assert refresh(8) < refresh(0) / 100


@pytest.mark.parametrize("gpus", [6, 16])
def test_the_largest_micro_batch_goes_in_and_one_row_more_does_not(gpus: int) -> None:
    job, cluster = read_job(None, LARGE, model="7b"), Cluster(GPUS["h100"], gpus)
    largest = fit(job, cluster).micro_batch_tokens
    row = job.longest.row
    assert largest > 0

    def goes_in(tokens: int) -> bool:
        found = memory.pools(replace(job, micro_batch_tokens=tokens, decoded_rows=1), cluster)
        return all(m.peak() <= cluster.usable for m in found)

    assert goes_in(largest)
    assert not goes_in(largest + row)


def test_checkpointing_saves_activations_and_costs_time() -> None:
    plain = make_plan(Request(settings=LARGE, model_config="7b", gpus=16))
    again = make_plan(Request(settings=[*LARGE, "ray.activation_checkpointing=true"], model_config="7b", gpus=16))
    without, with_ = plain.activations["actor"]
    assert with_ < without / 10
    assert again.fit.micro_batch_tokens > 2 * plain.fit.micro_batch_tokens
    kept, recomputed = (
        next(stage.compute for stage in plan.speed.stages if stage.name == "update_actor") for plan in (plain, again)
    )
    assert kept < recomputed < 1.5 * kept


def test_a_critic_of_its_own_pool_leaves_the_actors_ranks() -> None:
    job = read_job(None, [*LARGE, "ray.critic_ranks=4"], model="7b")
    found = {m.pool: m for m in memory.pools(job, Cluster(GPUS["h100"], 16, role_ranks=job.role_ranks))}
    assert (found["actor"].ranks, found["critic"].ranks) == (12, 4)
    assert "critic" not in found["actor"].resident
    assert set(found["critic"].stages) == {"values", "update_critic"}


def test_communication_dominates_from_the_turning_point_on() -> None:
    job, cluster = read_job(None, LARGE, model="7b"), Cluster(GPUS["h100"], 8)
    turn = turning_point(job, cluster, 4096)
    assert turn is not None
    for gpus, waits in ((turn - 8, False), (turn, True)):
        compute, communication = step_speed(job, cluster.grown(gpus)).learning
        assert (communication > compute) == waits
    assert turning_point(job, cluster, turn - 8) is None


def test_more_of_anything_is_never_slower() -> None:
    job, cluster = read_job(None, LARGE, model="7b"), Cluster(GPUS["h100"], 64)
    base = step_speed(job, cluster).seconds
    for name in ("flops", "bandwidth", "link", "network"):
        better = replace(cluster, gpu=replace(cluster.gpu, **{name: 2 * getattr(cluster.gpu, name)}))
        assert step_speed(job, better).seconds <= base
    assert step_speed(job, cluster.grown(32)).seconds > base


def test_flops_of_an_update_are_six_a_weight_and_token() -> None:
    from mingce.plan.speed import update_flops

    job = read_job(None, ["sampling.max_new_tokens=64", "data.max_prompt_tokens=1"], model="8b")
    found = job.actor
    matrices = found.shape.layers * sum(w.count for w in found.layer if w.matrix)
    assert update_flops(found, job) == pytest.approx(65 * (6 * matrices + 8 * found.shape.output.count), rel=0.03)


def test_a_greedy_answer_to_each_prompt_is_generated_and_scored_too() -> None:
    settings, cluster = [*LARGE, "reward.model=tiny"], Cluster(GPUS["h100"], 8)
    plain = read_job(None, [*settings, "estimator=reinforce_plus_plus"], model="7b")
    greedy = read_job(None, [*settings, "estimator=remax"], model="7b")
    assert greedy == replace(plain, greedy=True)  # the two differ in nothing else
    without, with_ = step_speed(plain, cluster), step_speed(greedy, cluster)
    assert without.tokens == without.generated == with_.tokens == 512 * 8 * 2048  # what is learned from
    assert with_.generated == 512 * 9 * 2048
    stages = [{stage.name: stage.compute for stage in speed.stages} for speed in (without, with_)]
    one_more = step_speed(replace(plain, samples=1), cluster).stages[0].compute
    assert stages[1]["generate"] == pytest.approx(stages[0]["generate"] + one_more)
    assert stages[1]["score"] == pytest.approx(stages[0]["score"] * 9 / 8)
    assert {name for name in stages[0] if stages[0][name] != stages[1][name]} == {"generate", "score"}
    rows = [
        replace(job, decoded_rows=64, longest=replace(job.longest, prompt=8192, response=1)) for job in (plain, greedy)
    ]
    peaks = [sum(memory.sampling_parts(job, 8).values()) for job in rows]
    assert peaks[0] < peaks[1]  # 64 prompts are read together, and not 8 with 8 samples each


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


def printed(*words: str, **options: Any) -> str:
    console = Console(file=StringIO(), width=140)
    run(console, parse(words), **options)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_plan_is_told_in_both_languages() -> None:
    zh = printed("--model-config", "7b", "--gpus", "16", *LARGE, lang="zh")
    en = printed("--model-config", "7b", "--gpus", "16", *LARGE, lang="en")
    assert "放得下" in zh
    assert "It fits" in en
    assert "KV 缓存" in zh
    assert "KV cache" in en
    assert "It does not fit" in printed("--model-config", "70b", *LARGE, lang="en")


def test_json_holds_the_same_numbers() -> None:
    words = ["--model-config", "7b", "--gpus", "16", *LARGE]
    values = json.loads(printed(*words, as_json=True))
    plan = make_plan(parse(words))
    assert values["model"]["parameters"] == 7_615_616_512
    assert values["fit"]["step"] is True
    assert values["time"]["seconds"] == plan.speed.seconds
    assert values["memory"][0]["peak"] == plan.memory[0].peak()
    assert [point["gpus"] for point in values["growth"]["same_batch"]] == [8, 16, 32, 64]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model-config", "7bb"], "unknown model '7bb'; did you mean '7b'"),
        (["--model-config", "no/such/config.json"], "cannot be read"),
        (["--gpus", "-4"], "--gpus is -4"),
        (["--gpus", "0"], "--gpus is 0"),
        (["--gpus-per-node", "0"], "--gpus-per-node is 0"),
        (["--gpu-memory", "80"], "with its unit, such as 80GB"),
        (["--gpu-memory", "-80GB"], "with its unit"),
        (["--network", "400Gb"], "with its unit, such as 50GB/s"),
        (["--gpu", "h1000"], "did you mean 'h100'"),
        (["--tflops", "-1"], "--tflops is -1"),
        (["--assume", "mfu=0.5"], "unknown assumption 'mfu'"),
        (["--assume", "train=1.5"], "at most 1"),
        (["--assume", "train=fast"], "not NAME=NUMBER"),
        (["--response-tokens", "17"], "sampling.max_new_tokens, 16"),
        (["--up-to", "4"], "--up-to is 4"),
        (["micro_batch_tokens=0"], "micro_batch_tokens must be at least 1"),
        (["micro_batch_token=9"], "did you mean 'micro_batch_tokens'"),
        (["micro_batch_tokens=many"], "micro_batch_tokens"),
        (["no-such.yaml"], "cannot be read"),
        (["a.yaml", "b.yaml"], "nor the one recipe"),
        (["model.path=someone/unheard-of"], "give --model-config"),
        (["model.dtype=int7"], "unknown model.dtype 'int7'"),
        (["ray.critic_ranks=8"], "leaves none of 8 GPUs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence(words: list[str], said: str) -> None:
    with pytest.raises(MingceError) as caught:
        make_plan(parse(words))
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "llama", "vocab_size": 9}, "lacks the key hidden_size"),
        ({"vocab_size": 9}, "lacks the key model_type"),
        ({"model_type": "qwen22"}, "unknown model family 'qwen22'; did you mean 'qwen2'"),
        ({"model_type": "gemma3", "text_config": {}}, "more than text"),
        ({"model_type": "mamba"} | TINY_MAMBA, "not attention and feed-forward alone"),
        ({"model_type": "gpt2", "vocab_size": "many"}, "must be a whole number"),
    ],
    ids=["missing", "no family", "unknown family", "pictures", "no attention", "no number"],
)
def test_a_config_that_says_too_little_is_one_sentence(config: Any, said: str) -> None:
    with pytest.raises(MingceError, match=said):
        shape_of(config, "short", "here")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "not a model's configuration"),
        ('{"model_type": "llama", "vocab_size": 9}', "config.json lacks the key hidden_size"),
    ],
    ids=["no JSON", "a list", "missing"],
)
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(MingceError, match=said):
        find_shape(str(file))


def test_units() -> None:
    assert parse_bytes("--x", "80GB") == 80e9
    assert parse_bytes("--x", "80 GiB") == 80 * 2**30
    assert parse_rate("--x", "400Gb/s") == parse_rate("--x", "50GB/s") == 50e9
    assert [show_bytes(n) for n in (0, 999, 14_230_000_000)] == ["0 B", "999 B", "14.2 GB"]
    assert [show_seconds(s) for s in (0.0032, 41, 720, 9000)] == ["3.2 ms", "41 s", "12 min", "2.5 h"]


def test_a_plan_needs_no_torch() -> None:
    code = (
        "import sys; from io import StringIO; from rich.console import Console\n"
        "from mingce.commands.plan import run; from mingce.plan.plan import Request\n"
        "run(Console(file=StringIO()), Request(model_config='7b'))\n"
        "assert not {'torch', 'transformers', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_tables_of_the_page_are_current(lang: str) -> None:
    text = (ROOT / "docs" / lang / "scaling.md").read_text(encoding="utf-8")
    assert text.count("<!-- mingce plan ") >= 3
    assert refreshed(text, lang) == text
