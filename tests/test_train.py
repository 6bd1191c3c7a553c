"""Training on the embedded task: it learns, records accounts that recompute, and goes on exactly where it stopped."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from mingce.algorithms import reference
from mingce.algorithms.losses import batch_totals
from mingce.config import Config, as_values, read_config
from mingce.credit import assign_credit, whitens
from mingce.engine.local import LocalRoles, Roles, build_roles
from mingce.ledger import Ledger
from mingce.models.micro_batches import batcher
from mingce.record import checkpoints
from mingce.record.run import Run
from mingce.specs import ESTIMATORS
from mingce.training import start

SMALL = (
    "steps=2",
    "prompts_per_step=8",
    "samples_per_prompt=2",
    "minibatch_rollouts=8",
    "validation.examples=8",
    "threads=1",
)


def trained(tmp_path: Path, *overrides: str, name: str = "run") -> Run:
    console = Console(file=io.StringIO(), width=100)
    start.train(console, None, [f"root={tmp_path}", f"name={name}", "threads=1", *overrides])
    return Run.open(tmp_path / name, readonly=True)


def small_roles(*overrides: str) -> tuple[Config, LocalRoles]:
    config = read_config(None, [*SMALL, *overrides])
    return config, build_roles(config)


def filled(config: Config, roles: Roles) -> Ledger:
    """One step's ledger up to its credit."""
    examples = roles.batch(1, config.prompts_per_step, config.seed)
    ledger = roles.actor.generate(examples, 1)
    ledger.fill(roles.reward.score(ledger, [e for e in examples for _ in range(config.samples_per_prompt)], 1))
    ledger.fill(roles.actor.log_probs(ledger))
    if roles.reference is not None:
        ledger.fill(roles.reference.log_probs(ledger))
    if roles.critic is not None:
        ledger.fill(roles.critic.values(ledger))
    assign_credit(ledger, config, config.kl.reward_coef)
    return ledger


@pytest.mark.parametrize("estimator", ["gae", "grpo", "rloo", "monte_carlo"])
def test_it_learns(tmp_path: Path, estimator: str) -> None:
    """Six steps lift the sampled accuracy on held-out prompts from under a half to over four fifths."""
    run = trained(tmp_path, f"estimator={estimator}", "steps=6", "validation.every=0", "keep.checkpoint_every=100")
    metrics = run.metrics()
    assert metrics[0]["val/accuracy_sampled"] <= 0.55
    assert metrics[-1]["val/accuracy_sampled"] >= 0.8
    assert metrics[-1]["val/accuracy_greedy"] >= 0.9
    assert metrics[-1]["critic/kl"] > metrics[1]["critic/kl"] == pytest.approx(0, abs=1e-5)
    assert ("critic/vf_loss" in metrics[-1]) == ESTIMATORS[estimator].needs_critic


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_the_critic_learns_to_foresee(tmp_path: Path, lang: str) -> None:
    """While the actor waits, the critic comes to explain 0.3 of the variance of rollouts it has not been fitted to.

    The values of a step are from before its update, and its prompts were in no step before. λ-returns lean on the
    critic's own values, so the score that the answer got in the end is asked as well.
    """
    settings = (f"lang={lang}", "critic.warmup=12", "steps=12", "validation.every=0", "validation.examples=8")
    run = trained(tmp_path, *settings)
    foreseen = [line["critic/vf_explained_var"] for line in run.metrics()[1:]]
    assert abs(foreseen[0]) < 0.05
    assert sum(foreseen[-5:]) / 5 > 0.3
    assert "actor/updates" not in run.metrics()[-1]

    ledger = Ledger.concat([run.ledger.read(step) for step in range(8, 13)])
    score = ledger["scores"].sum(dim=1, keepdim=True).expand_as(ledger["values"])[ledger.mask]
    missed = score - ledger["values"][ledger.mask]
    assert 1 - missed.var() / score.var() > 0.3


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_estimator_runs(tmp_path: Path, estimator: str) -> None:
    run = trained(tmp_path, *SMALL, f"estimator={estimator}")
    last = run.metrics()[-1]
    assert last["step"] == 2
    assert last["actor/grad_norm"] > 0
    assert "advantages" in run.ledger.read(2)


@pytest.mark.parametrize(
    "settings",
    [
        ("task=counting", "max_new_tokens=48"),
        ("lang=en",),
        ("kl.loss_coef=0.1", "kl.reward_coef=0", "actor.entropy_coef=0.01"),
        ("kl.adaptive=true", "kl.estimator=k3", "actor.loss=cpi"),
        ("max_new_tokens=4", "truncation=bootstrap"),
        ("max_new_tokens=4", "truncation=mask"),
        ("actor.loss_agg_mode=seq-mean-token-sum-norm", "temperature=0.7"),
        ("model.lora.rank=4", "actor.schedule=cosine", "actor.warmup_steps=1"),
        ("top_p=0.9", "critic.warmup=1", "actor.stop_kl=0.0001"),
    ],
    ids=lambda settings: settings[0],
)
def test_settings_run_and_their_accounts_recompute(tmp_path: Path, settings: tuple[str, ...]) -> None:
    run = trained(tmp_path, *SMALL, *settings)
    config = read_config(None, [*SMALL, *settings])
    for step in (1, 2):
        recompute(run.ledger.read(step), config, run.metrics()[step]["critic/kl_coeff"])


def recompute(ledger: Ledger, config: Config, beta: float) -> None:
    """Every computed column of a stored ledger follows from the others, by the float64 twins."""
    column = {name: values.tolist() for name, values in ledger.columns().items()}
    mask, losses = column["response_mask"], column["loss_mask"]

    def same(name: str, wanted: list[list[float]], where: list[list[int]] = mask) -> None:
        for b, row in enumerate(where):
            scale = max((abs(wanted[b][t]) for t in reference.chosen(row)), default=0.0)
            for t in reference.chosen(row):
                assert column[name][b][t] == pytest.approx(wanted[b][t], abs=1e-5 * max(scale, 1.0)), (name, b, t)

    if "kl" in ledger:
        kl = [
            [reference.kl_penalty(o, r, config.kl.estimator) for o, r in zip(old, ref, strict=True)]
            for old, ref in zip(column["old_log_probs"], column["ref_log_probs"], strict=True)
        ]
        same("kl", kl)
        same("rewards", reference.kl_rewards(column["scores"], column["kl"], mask, beta))
    cut = [reason == "length" for reason in ledger.rows["finish_reason"]]
    bootstrap = [
        v if c and config.credit.truncation == "bootstrap" else 0.0
        for v, c in zip(ledger.rows["bootstrap_value"], cut, strict=True)
    ]
    credit = reference.gae(column["rewards"], column["values"], mask, config.credit.gamma, config.credit.lam, bootstrap)
    same("deltas", credit.deltas)
    same("advantages", credit.advantages)
    same("returns", credit.returns)
    assert torch.equal(ledger["returns"], ledger["advantages"] + ledger["values"])
    if config.credit.truncation == "mask":
        assert [any(row) for row in losses] == [not c for c in cut]
    same("whitened_advantages", reference.masked_whiten(column["advantages"], losses), losses)
    for b, row in enumerate(losses):
        for t in reference.chosen(row):
            if "value_loss" in column:
                term = reference.value_term(
                    column["new_values"][b][t],
                    column["returns"][b][t],
                    column["values"][b][t],
                    config.critic.value_clip,
                )
                assert column["value_loss"][b][t] == pytest.approx(term.loss, abs=1e-5)
            if "policy_loss" in column and column["ratio"][b][t] > 0:
                old, new, adv = (
                    column[name][b][t] for name in ("old_log_probs", "new_log_probs", "whitened_advantages")
                )
                wanted = (
                    reference.cpi_term(old, new, adv)
                    if config.actor.loss == "cpi"
                    else reference.policy_term(
                        old, new, adv, config.actor.clip_low, config.actor.clip_high, config.actor.dual_clip
                    ).loss
                )
                assert column["policy_loss"][b][t] == pytest.approx(wanted, abs=1e-4)


def test_the_gradient_does_not_depend_on_micro_batches() -> None:
    gradients = []
    for tokens, packed in ((40, False), (200, False), (40, True), (200, True), (100_000, True)):
        config, roles = small_roles(f"micro_batch_tokens={tokens}", "task=counting", "max_new_tokens=48")
        ledger = filled(config, roles)
        assert roles.critic is not None
        for role in (roles.actor, roles.critic):
            role.learner._gradient(ledger, role.loss, batcher(tokens, packed=packed), None)
        parameters = [*roles.actor.learner.parameters, *roles.critic.learner.parameters]
        gradients.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))
    for other in gradients[1:]:
        assert (gradients[0] - other).norm() <= 1e-5 * gradients[0].norm()


def test_ratio_is_one_on_the_first_minibatch_and_sampler_equals_trainer() -> None:
    config, roles = small_roles("temperature=0.7", "prompts_per_step=64")
    ledger = filled(config, roles)
    _, columns = roles.actor.loss(ledger, batch_totals(ledger.loss_mask))
    assert (columns["ratio"][ledger.mask] - 1).abs().max() < 1e-4
    gap = (ledger["old_log_probs"] - ledger["rollout_log_probs"])[ledger.mask]
    assert gap.abs().max() < 1e-4
    weights = gap.exp()
    assert abs(float(weights.mean()) - 1) <= 4 * float(weights.std()) / len(weights) ** 0.5 + 1e-5


def same_files(a: Run, b: Run) -> None:
    """Metrics and audits byte for byte, the newest checkpoints' tensors bit for bit, the ledgers' columns too."""
    assert a.metrics_path.read_bytes() == b.metrics_path.read_bytes()
    assert a.audit_path.read_bytes() == b.audit_path.read_bytes()
    step = a.checkpoint_steps()[-1]
    assert step == b.checkpoint_steps()[-1]
    left, right = (checkpoints.load(run, step) for run in (a, b))
    for file, tensors in left.tensors.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, right.tensors[file][name]), (file, name)
    assert left.state == right.state
    for step in a.ledger.steps():
        mine, theirs = a.ledger.read(step).columns(), b.ledger.read(step).columns()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_stopped_run_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (*SMALL, "steps=4", "kl.adaptive=true", "keep.checkpoint_every=1", "validation.every=2")
    whole = trained(tmp_path, *settings, name="whole")
    from mingce.training.trainer import Trainer

    usual = Trainer.step

    def stops_after_three(self: Trainer, step: int):  # type: ignore[no-untyped-def]
        self.interrupted = "Ctrl-C" if step == 3 else ""  # between two validations
        return usual(self, step)

    monkeypatch.setattr(Trainer, "step", stops_after_three)
    trained(tmp_path, *settings, name="parts")
    monkeypatch.setattr(Trainer, "step", usual)
    assert Run.open(tmp_path / "parts", readonly=True).metrics()[-1]["step"] == 3
    start.resume(Console(file=io.StringIO()), tmp_path / "parts")
    parts = Run.open(tmp_path / "parts", readonly=True)
    same_files(whole, parts)


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    run = trained(tmp_path, *SMALL, "steps=3", "keep.checkpoint_every=1", "keep.best=0", name="whole")
    other = trained(tmp_path, *SMALL, "steps=3", "keep.checkpoint_every=1", "keep.best=0", name="hurt")
    file = other.checkpoints_path / "step-000003" / "actor.safetensors"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    said = io.StringIO()
    start.resume(Console(file=said, width=300), tmp_path / "hurt")
    assert "step-000003" in said.getvalue()
    same_files(run, Run.open(tmp_path / "hurt", readonly=True))


def test_a_finished_run_can_be_given_more_steps(tmp_path: Path) -> None:
    trained(tmp_path, *SMALL, "steps=2", name="short")
    whole = trained(tmp_path, *SMALL, "steps=3", name="long")
    start.resume(Console(file=io.StringIO()), tmp_path / "short", ["steps=3"])
    short = Run.open(tmp_path / "short", readonly=True)
    assert [line["step"] for line in short.metrics()] == [0, 1, 2, 3]
    same = {k: v for k, v in whole.metrics()[3].items() if not k.startswith("val/")}
    assert {k: v for k, v in short.metrics()[3].items() if not k.startswith("val/")} == same


def test_prompts_of_a_step_are_a_function_of_its_number() -> None:
    config, roles = small_roles()
    everything = [roles.batch(step, 100, 0) for step in range(1, 60)]
    assert [e.uid for e in roles.batch(7, 100, 0)] == [e.uid for e in everything[6]]
    seen = [e.uid for batch in everything for e in batch][: len(roles.train)]
    if len(seen) == len(roles.train):
        assert len(set(seen)) == len(seen)
    assert [e.uid for e in roles.batch(1, 100, 1)] != [e.uid for e in everything[0]]
    assert config.seed == 0


def test_stored_configuration_reads_back(tmp_path: Path) -> None:
    run = trained(tmp_path, *SMALL, "lam=0.9")
    assert run.config()["credit"]["lam"] == 0.9
    assert as_values(read_config(None, [*SMALL, "lam=0.9", f"root={tmp_path}", "name=run"])) == run.config()


@pytest.mark.parametrize(
    ("whiten", "estimator", "wanted"),
    [("auto", "gae", True), ("auto", "rloo", False), ("always", "rloo", True), ("never", "gae", False)],
)
def test_whitening_is_as_it_was_set(whiten: str, estimator: str, wanted: bool) -> None:
    assert whitens(read_config(None, [f"credit.whiten={whiten}", f"estimator={estimator}"])) is wanted
