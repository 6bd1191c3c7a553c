"""Rollouts of several turns: what was told carries no weight, ids are those sampled, and failures cost their row."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import SMALL, quiet, trained
from test_tool_calls import tokenizer_of
from torch import Tensor
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mingce.algorithms.losses import batch_totals
from mingce.base.errors import EnvironmentFault, MingceError
from mingce.config import read_config
from mingce.credit import assign_credit
from mingce.engine.local import LocalRoles, build_roles
from mingce.explain.recomputed import recompute
from mingce.ledger import Ledger
from mingce.models.prompts import render_prompt
from mingce.record.run import Run
from mingce.sources.dumps import open_source
from mingce.sources.rollouts import read_rollout
from mingce.tasks.check import check_task
from mingce.training import start

CHATTER = (
    f"task={Path(__file__).parent / 'agent_task.py'}:Chatter", "model.path=calculator", "sampling.max_new_tokens=60",
    "agent.turn_tokens=12", "prompts_per_step=12", "samples_per_prompt=2", "minibatch_rollouts=24",
    "sampling.temperature=1.5", "sampling.stop=[！,0]", "agent.max_turns=5", "threads=1",
)  # fmt: skip


def rolled_out(*overrides: str, step: int = 1) -> tuple[LocalRoles, Ledger]:
    """Roles, and a step's ledger as far as credit."""
    config = read_config(None, [*CHATTER, *overrides])
    roles = build_roles(config)
    examples = roles.batch(step, config.prompts_per_step, config.seed)
    ledger = roles.actor.generate(examples, step)
    drawn_for = [example for example in examples for _ in range(config.samples_per_prompt)]
    ledger.fill(roles.reward.score(ledger, drawn_for, step))
    ledger.fill(roles.actor.log_probs(ledger))
    if roles.reference is not None:
        with torch.no_grad():  # a policy that has moved, so that there is a KL
            for parameter in roles.actor.model.parameters():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        ledger.fill(roles.actor.log_probs(ledger), roles.reference.log_probs(ledger))
    if roles.critic is not None:
        ledger.fill(roles.critic.values(ledger))
    assign_credit(ledger, config, 0.1)
    roles.close()
    return roles, ledger


def holes(ledger: Ledger) -> Tensor:
    return ledger["attention_mask"] & ~ledger.mask


@pytest.mark.parametrize("estimator", ["gae", "turn_gae", "monte_carlo", "grpo", "reinforce_plus_plus", "uniform"])
def test_what_was_told_has_no_weight(estimator: str) -> None:
    roles, ledger = rolled_out(f"estimator={estimator}")
    told, mask = holes(ledger), ledger.mask
    assert int(told.sum()) > 50
    assert roles.actor.worlds is not None
    for name in ("scores", "kl", "rewards", "advantages", "whitened_advantages", "loss_mask", "rollout_log_probs"):
        if name in ledger:
            assert not ledger[name][told].any(), name
    assert roles.actor.worlds.measured["agent/ids_as_sampled"] == 1.0
    assert bool((ledger["role"][mask] == 1).all())
    assert bool((ledger["role"][told] == 2).all())
    # the same rows with the holes cut out have the same credit: recursions step over them
    cut = [ledger["rewards"][row][mask[row]] for row in range(len(ledger))]
    for row, rewards in enumerate(cut):
        if estimator == "monte_carlo":
            later = rewards.flip(0).cumsum(0).flip(0)
            torch.testing.assert_close(ledger["advantages"][row][mask[row]], later - ledger["values"][row][mask[row]])
    if "whitened_advantages" in ledger:
        used = ledger["advantages"][mask]
        white = (used - used.mean()) / (used.var(correction=1) + 1e-8).sqrt()
        torch.testing.assert_close(ledger["whitened_advantages"][mask], white, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_turn_is_one_action(seed: int) -> None:
    """Tokens of a turn share advantage and target; over the turns it is GAE of their rewards and first values."""
    _, ledger = rolled_out("estimator=turn_gae", "credit.gamma=0.9", "credit.lam=0.7", f"seed={seed}", step=seed + 1)
    assert int(ledger["turn"].max()) > 1
    for row in range(len(ledger)):
        mask, turn = ledger.mask[row], ledger["turn"][row]
        slots = [(mask & (turn == k)).nonzero().squeeze(1) for k in range(int(turn[mask].max()) + 1)]
        ahead = later = 0.0
        for chosen in reversed([one for one in slots if len(one)]):
            value = float(ledger["values"][row][chosen[0]])
            later = float(ledger["rewards"][row][chosen].sum()) + 0.9 * ahead - value + 0.63 * later
            ahead = value
            torch.testing.assert_close(ledger["advantages"][row][chosen], torch.full((len(chosen),), later))
            torch.testing.assert_close(ledger["returns"][row][chosen], torch.full((len(chosen),), later + value))


def test_turns_are_paid_on_their_last_tokens() -> None:
    _, ledger = rolled_out()
    for row in range(len(ledger)):
        turns, mask = ledger["turn"][row], ledger.mask[row]
        earned = ledger.row("turn_rewards")[row]
        assert len(earned) == int(turns[mask].max()) + 1
        expected = torch.zeros(ledger.width)
        for turn, amount in enumerate(earned):
            expected[int((mask & (turns == turn)).nonzero().max())] += amount
        expected[int(mask.nonzero().max())] += 0.25  # the task's score of the last message
        torch.testing.assert_close(ledger["scores"][row], expected)


@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_are_those_of_single_rows(seed: int) -> None:
    """Of rows computed one by one by transformers, without cache, packing or padding."""
    roles, ledger = rolled_out(f"seed={seed}", "kl.reward_coef=0", step=seed + 1)
    actor, critic, mask = roles.actor, roles.critic, ledger.mask
    assert critic is not None
    count = int(mask.sum())
    for model, loss in ((actor.model, actor.loss), (critic.model, critic.loss)):
        model.zero_grad()
        loss(ledger, batch_totals(mask))[0].backward()
        found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        for row in range(len(ledger)):
            chosen = mask[row].nonzero().squeeze(1)
            prompt, ids = ledger.row("prompt_ids")[row], ledger["token_ids"][row][ledger["attention_mask"][row]]
            whole = torch.cat([torch.tensor(prompt), ids])[None]
            before = len(prompt) - 1 + chosen
            if model is actor.model:
                logits = actor.model(input_ids=whole).logits[0, before] / actor.sampling.temperature
                picked = logits.log_softmax(-1)[torch.arange(len(chosen)), ids[chosen]]
                part = -(picked * ledger["whitened_advantages"][row][chosen]).sum()
            else:
                states = critic.model.backbone(input_ids=whole).last_hidden_state[0, before]
                part = 0.5 * (critic.model.head(states)[:, 0] - ledger["returns"][row][chosen]).square().sum()
            (part / count).backward()
        for name, parameter in model.named_parameters():
            if name in found:
                assert parameter.grad is not None
                torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "fails",
    [
        "raises", "exits", "hangs", "pays nan", "pays text", "counts nan", "counts text", "says a number", "says bytes",
        "says too much", "no content", "no role", "no observation",
    ],
)  # fmt: skip
def test_a_failure_costs_its_row(fails: str) -> None:
    _, ledger = rolled_out(
        f"data.options.fails={fails}", "agent.on_error=-2", "agent.time_limit=0.3", "agent.workers=2"
    )
    reasons = ledger.row("finish_reason")
    failed = [reason == "error" for reason in reasons]
    third = [int(group.rpartition("-c")[2]) % 3 == 0 for group in ledger.row("group")]
    assert 0 < sum(failed) < len(failed)
    assert all(
        reason in (("error", "length") if bad else ("stop", "length"))
        for reason, bad in zip(reasons, third, strict=True)
    )
    assert all((total == -2) == bad for total, bad in zip(ledger["scores"].sum(1).tolist(), failed, strict=True))


def test_a_failure_may_stop_the_run() -> None:
    with pytest.raises(EnvironmentFault, match=r"c\d+ failed \(turn 0: RuntimeError: the tool broke\)"):
        rolled_out("data.options.fails=raises", "agent.on_error=stop")


def test_half_a_character_is_replaced_and_costs_nothing() -> None:
    from mingce.tasks.environment import Observation, checked

    assert checked(Observation("a\ud800b")).content == "a\ufffdb"
    assert checked(Observation([{"role": "tool", "content": "\ud83d\ude00"}])).content == [
        {"role": "tool", "content": "\U0001f600"}
    ]


def test_a_turn_cut_by_a_limit_is_heard_and_is_no_drift() -> None:
    """The last turn of a conversation that a limit ends in its midst, which no environment is told of."""
    from mingce.roles.dialogues import play
    from mingce.tasks.registry import load_task

    roles = build_roles(read_config(None, [*CHATTER, "agent.turn_tokens=5"]))
    examples = list(load_task(CHATTER[0].removeprefix("task=")).train_examples()[:20])
    plays = play(roles.actor, examples, roles.actor.sampling, list(range(20)), list(range(20)))
    roles.close()
    cut = [one for one in plays if one.transcript is not None and len(one.transcript.turns) > len(one.rewards)]
    assert len(cut) > 5
    tokenizer, undrifted = roles.actor.tokenizer, 0
    for one in cut:
        assert one.transcript is not None
        assert one.answer == tokenizer.decode(one.transcript.turns[-1], skip_special_tokens=True)
        assert one.text.endswith(str(tokenizer.decode(one.transcript.turns[-1])))
        (segment,) = one.transcript.segments
        own = [*segment.prompt, *segment.ids]
        same = render_prompt(tokenizer, str(tokenizer.decode(own))) == own
        undrifted += same
        assert (one.drift == -1) == same
    assert undrifted > 2


def test_threads_coroutines_and_time_change_nothing() -> None:
    _, alone = rolled_out("agent.workers=0")
    for how in (("agent.workers=3", "data.options.slow=0.003"), ("data.options.awaits=true",)):
        _, other = rolled_out(*how)
        assert all(torch.equal(alone[name], other[name]) for name in alone.columns())
        assert alone.rows == other.rows


def test_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    how = [*CHATTER, "validation.examples=4", "data.options.slow=0.002"]
    whole = trained(tmp_path, "whole", *how, "steps=3")
    part = trained(tmp_path, "part", *how, "steps=1")
    start.resume(quiet(), part, ["steps=3"])
    one, two = Run.open(whole, readonly=True), Run.open(part, readonly=True)
    for step in (1, 2, 3):
        a, b = one.ledger.read(step), two.ledger.read(step)
        assert a.rows == b.rows
        assert all(torch.equal(a[name], b[name]) for name in a.columns())
    clocks = ("timing_s/", "perf/")
    kept = [
        [{k: v for k, v in line.items() if not k.startswith(clocks)} for line in run.metrics()] for run in (one, two)
    ]
    assert repr(kept[0]) == repr(kept[1])


def test_a_killed_run_with_a_stochastic_environment_goes_on_bit_for_bit(tmp_path: Path) -> None:
    how = [*SMALL, *CHATTER, "validation.examples=4", "data.options.slow=0.002", "steps=4"]
    whole = trained(tmp_path, "whole", *how)
    command = [sys.executable, "-m", "mingce.cli", "train", f"root={tmp_path}", "name=part", *how]
    part = tmp_path / "part"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (part / "checkpoints" / "step-000001").is_dir() and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    start.resume(quiet(), part, [])
    one, two = Run.open(whole, readonly=True), Run.open(part, readonly=True)
    for step in range(1, 5):
        a, b = one.ledger.read(step), two.ledger.read(step)
        assert a.rows == b.rows
        assert all(torch.equal(a[name], b[name]) for name in a.columns())
    weights = [sorted((run / "checkpoints" / "step-000004").rglob("*.safetensors")) for run in (whole, part)]
    assert weights[0]
    assert [file.read_bytes() for file in weights[0]] == [file.read_bytes() for file in weights[1]]


def test_the_audit_knows_credit_by_turns(tmp_path: Path) -> None:
    """Returns are those of turns, and not each token's advantage plus its own value, once the critic has moved."""
    how = ("task=calculator", "model.path=calculator", "sampling.max_new_tokens=64", "audit.every=1", "audit.stop=true")
    run = Run.open(trained(tmp_path, "r", *how, "estimator=turn_gae", "steps=3"), readonly=True)
    ledger, (*_, last) = run.ledger.read(3), run.metrics()
    apart = (ledger["advantages"] + ledger["values"] - ledger["returns"])[ledger.mask]
    assert float(apart.abs().max()) > 1e-3
    assert last["audit/bugs"] == 0


def test_metrics_of_conversations(tmp_path: Path) -> None:
    run = Run.open(trained(tmp_path, "r", "task=calculator", "model.path=calculator", "sampling.max_new_tokens=64",
                           "audit.every=1"), readonly=True)  # fmt: skip
    *_, last = run.metrics()
    ledger = run.ledger.read(2)
    assert last["agent/ids_as_sampled"] == 1.0
    assert last["agent/segments"] == 1.0
    assert last["agent/failed_share"] == 0
    assert last["agent/tool_calls"] == sum(ledger.row("tool_calls")) / len(ledger)
    assert last["agent/turns/max"] == int(ledger["turn"].max()) + 1
    assert last["audit/bugs"] == 0


@pytest.mark.parametrize("task", ["calculator", "reasoning_gym_turns:chain_sum"])
def test_gold_turns_earn_full_marks(task: str) -> None:
    from mingce.tasks.registry import load_task

    assert not check_task(load_task(task, size=20, held_out_size=5)).failures


def test_a_tool_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text("def calc(expression: str) -> int:\n    'Computes.'\n    return eval(expression)\n")
    how = (f"agent.tools=[{file}:calc]", "task=arithmetic", "agent.tool_format=tags", "sampling.max_new_tokens=40")
    _, ledger = rolled_out(*how, "sampling.temperature=1.0", "sampling.stop=[]")
    assert sum(ledger.row("tool_calls")) + sum(ledger.row("malformed_calls")) > 0
    with pytest.raises(MingceError, match="has no function 'cals'; did you mean"):
        rolled_out(f"agent.tools=[{file}:cals]", "agent.tool_format=tags")
    with pytest.raises(MingceError, match="no chat template that could tell of tools"):
        rolled_out(*how[:2])


def test_wrong_settings_are_sentences() -> None:
    wrong: dict[str, Any] = {
        "agent.on_error=maybe": "must be stop or a number", "agent.max_turns=0": "at least 1",
        "agent.time_limit=0": "above 0", "agent.tool_format=xml": "unknown tool format",
        "data.options.nonsense=1": "cannot make its task", "task=nowhere.py:Task": "cannot be read",
    }  # fmt: skip
    for setting, sentence in wrong.items():
        with pytest.raises(MingceError, match=sentence):
            rolled_out(setting)


def forgetful_model(place: Path) -> Path:
    """A random model whose template leaves out what it said before, so that conversations are cut into segments."""
    forgets = (
        "{% for m in messages %}{% if m.role == 'user' or loop.last %}{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}:{% endif %}"
    )
    tokenizer = tokenizer_of(forgets)
    tokenizer.save_pretrained(place)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), eos_token_id=1, num_attention_heads=4, **sizes)
    LlamaForCausalLM(config).save_pretrained(place)
    return place


NAGGED = (
    f"task={Path(__file__).parent / 'agent_task.py'}:Nagging", "sampling.stop=[e,x,0,5]", "sampling.max_new_tokens=200",
    "agent.turn_tokens=0", "sampling.temperature=1.0",
)  # fmt: skip


def test_a_rewritten_history_makes_segments(tmp_path: Path) -> None:
    roles, ledger = rolled_out(f"model.path={forgetful_model(tmp_path)}", *NAGGED)
    assert roles.actor.worlds is not None
    assert roles.actor.worlds.measured["agent/ids_as_sampled"] == 1.0
    whole = [n for n in set(ledger.row("conversation")) if ledger.row("conversation").count(n) == 3]
    assert len(whole) > 12
    for number in whole:
        rows = [row for row, other in enumerate(ledger.row("conversation")) if other == number]
        assert [ledger.row("segment")[row] for row in rows] == [0, 1, 2]
        assert [ledger.row("prompt")[row].count("go on") for row in rows] == [0, 1, 2]
        # 1, 2 and 3 for the turns, 0.25 for the last message: what came later is paid at a segment's end, too
        assert ledger["scores"][rows].sum(1).tolist() == [6.25, 5.25, 3.25]
        assert len({ledger.row("uid")[row] for row in rows}) == 3


def test_what_a_template_refuses_costs_its_row(tmp_path: Path) -> None:
    place = forgetful_model(tmp_path)
    refuses = "{% for m in messages if m.role == 'nobody' %}{{ raise_exception('nobody speaks') }}{% endfor %}"
    tokenizer = AutoTokenizer.from_pretrained(place)
    tokenizer.chat_template = refuses + tokenizer.chat_template
    tokenizer.save_pretrained(place)
    how = (f"model.path={place}", *NAGGED, f"task={Path(__file__).parent / 'agent_task.py'}:Picky")
    _, ledger = rolled_out(*how, "agent.on_error=-2")
    third = [int(group.rpartition("-n")[2]) % 3 == 0 for group in ledger.row("group")]
    for row, reason in enumerate(ledger.row("finish_reason")):
        assert reason in (("error", "length") if third[row] else ("stop", "length"))
        if reason == "error":
            assert float(ledger["scores"][row].sum()) == -2
    assert "error" in ledger.row("finish_reason")
    with pytest.raises(EnvironmentFault, match=r"failed \(turn 0: .*nobody speaks"):
        rolled_out(*how, "agent.on_error=stop")


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo", "opo"])
def test_a_conversation_of_several_rows_counts_once_in_its_group(estimator: str, tmp_path: Path) -> None:
    """Which says the same to the account, computed again from the run, and leaves the audit nothing to say."""
    how = [*CHATTER, *NAGGED, "samples_per_prompt=4", f"estimator={estimator}", "validation.examples=4",
           "agent.max_turns=4", "audit.every=1", f"model.path={forgetful_model(tmp_path / 'model')}"]  # fmt: skip
    path = trained(tmp_path, "run", *how, "steps=1")
    run = Run.open(path, readonly=True)
    ledger = run.ledger.read(1)
    conversation, group = ledger.row("conversation"), ledger.row("group")
    assert len(ledger) > len(set(conversation))
    total = [float(ledger["rewards"][row][ledger.mask[row]].double().sum()) for row in range(len(ledger))]
    length = ledger.mask.sum(1).tolist()
    for row in range(len(ledger)):
        first = {conversation[one]: one for one in reversed(range(len(ledger))) if group[one] == group[row]}
        others = [one for own, one in first.items() if own != conversation[row]]
        mean = sum(total[one] for one in [row, *others]) / (1 + len(others))
        spread = (sum((total[one] - mean) ** 2 for one in [row, *others]) / len(others)) ** 0.5
        weighted = sum(length[one] * total[one] for one in [row, *others]) / sum(length[one] for one in [row, *others])
        expected = {
            "grpo": (total[row] - mean) / (spread + 1e-6), "dr_grpo": total[row] - mean,
            "rloo": total[row] - sum(total[one] for one in others) / len(others), "opo": total[row] - weighted,
        }[estimator] if spread > 1e-6 else 0.0  # fmt: skip
        found = ledger["advantages"][row][ledger.mask[row]]
        torch.testing.assert_close(found, torch.full_like(found, expected), rtol=1e-4, atol=1e-5)
    for row in range(0, len(ledger), 7):
        rollout = read_rollout(open_source(path), 1, row, None)
        rows = [one for one, number in enumerate(conversation) if number == conversation[row]]
        assert rollout.segments == (rows if len(rows) > 1 else [])
        again = [x for x, mine in zip(recompute(rollout)["advantages"], rollout.mask, strict=True) if mine]
        torch.testing.assert_close(torch.tensor(again), ledger["advantages"][row][ledger.mask[row]])
    assert run.metrics()[-1]["audit/bugs"] == 0
    assert "group-statistics-over-turns" not in (path / "audit.jsonl").read_text()
