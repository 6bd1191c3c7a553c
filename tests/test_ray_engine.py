"""engine=ray gives local's numbers with any number of ranks, and its checkpoints open everywhere."""

from __future__ import annotations

import importlib
import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_train import SMALL, filled

from mingce.base.errors import ClusterError, SettingError
from mingce.config import Config, as_values, read_config
from mingce.engine import local
from mingce.engine import ray as far_away
from mingce.engine.cluster import _address_of, _join
from mingce.engine.rank import Rank
from mingce.ledger import Ledger
from mingce.models.value_head import ValueModel
from mingce.record import checkpoints
from mingce.record.run import Run

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.usefixtures("ray_cluster")]

SETTINGS = (*SMALL, "micro_batch_tokens=70", "task=counting", "max_new_tokens=24")


CHATTER = f"{Path(__file__).parent / 'agent_task.py'}:Chatter"


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=pytest.mark.slow), 4])
def far(request: pytest.FixtureRequest) -> Iterator[far_away.RayRoles]:
    roles = far_away.build_roles(read_config(None, [*SETTINGS, "engine=ray", f"ray.ranks={request.param}"]))
    yield roles
    roles.close()


@pytest.fixture(scope="module")
def two_steps_here() -> tuple[Config, local.LocalRoles, list[Ledger], list[dict[str, float]]]:
    """Two steps in this process, the second with a policy that has learned."""
    config = read_config(None, list(SETTINGS))
    roles = local.build_roles(config)
    return config, roles, *two_steps(config, roles)


def two_steps(config: Config, roles: local.Roles) -> tuple[list[Ledger], list[dict[str, float]]]:
    assert roles.critic is not None
    ledgers, reports = [], []
    for step in (1, 2):
        ledger = filled(config, roles)
        reports.append(roles.critic.update(ledger, step) | roles.actor.update(ledger, step))
        ledgers.append(ledger)
    return ledgers, reports


def test_every_number_is_local_s(
    far: far_away.RayRoles, two_steps_here: tuple[Config, local.LocalRoles, list[Ledger], list[dict[str, float]]]
) -> None:
    config, _, wanted, reports = two_steps_here
    ledgers, found = two_steps(config, far)
    for step in (0, 1):
        assert ledgers[step].columns().keys() == wanted[step].columns().keys()
        for name, column in wanted[step].columns().items():
            mine = ledgers[step][name]
            if column.dtype in (torch.bool, torch.long):
                assert torch.equal(mine, column), f"{name} of step {step + 1}"
                continue
            scale = float(column.abs().max()) or 1.0
            assert float((mine - column).abs().max()) <= 1e-4 * scale, f"{name} of step {step + 1}"
        assert ledgers[step].rows["response"] == wanted[step].rows["response"]
        assert ledgers[step].rows["policy_version"] == wanted[step].rows["policy_version"]
        assert found[step] == pytest.approx(reports[step], rel=1e-4)
    assert float(wanted[1]["old_log_probs"].sub(wanted[1]["ref_log_probs"]).abs().max()) > 1e-3, "nothing was learned"


@pytest.mark.parametrize(
    "settings",
    [("task=calculator",), (f"task={CHATTER}", "data.options.fails=raises", "agent.workers=2")],
    ids=["calculator", "chatter"],
)
def test_environments_run_beside_the_ranks(settings: tuple[str, ...]) -> None:
    """Conversations and all their numbers are local's; a failing environment costs its row there, too."""
    how = [*SMALL, "model.path=calculator", "max_new_tokens=64", "sampling.temperature=1.3", "agent.max_turns=4"]
    how += ["agent.on_error=-2", *settings, "prompts_per_step=5"]
    config = read_config(None, how)
    here = local.build_roles(config)
    there = far_away.build_roles(read_config(None, [*how, "engine=ray", "ray.ranks=2"]))
    try:
        (left, right), (reports, found) = zip(*(two_steps(config, roles) for roles in (here, there)), strict=True)
        for step in (0, 1):
            assert right[step].columns().keys() == left[step].columns().keys()
            for name, column in left[step].columns().items():
                if column.dtype in (torch.bool, torch.long):
                    assert torch.equal(right[step][name], column), (name, step)
                    continue
                wrong = float((right[step][name] - column).abs().max())
                assert wrong <= 1e-4 * float(column.abs().max()) + 1e-5, (name, step)
            after = "bootstrap_value"  # the critic's, of each row
            assert right[step].row(after) == pytest.approx(left[step].row(after), rel=1e-4, abs=1e-5)
            rows = [{name: row for name, row in one[step].rows.items() if name != after} for one in (left, right)]
            assert rows[0] == rows[1]
            assert found[step] == pytest.approx(reports[step], rel=1e-4)
        assert int(left[0]["turn"].max()) > 0
        assert ("error" in left[0].row("finish_reason")) == ("Chatter" in config.task)
        assert there.actor.worlds is not None
        assert there.actor.worlds.measured["agent/ids_as_sampled"] == 1.0
        assert [len(row) for row in there.actor.worlds.clocks] == [len(set(r.tolist())) for r in right[1]["turn"]]
    finally:
        there.close()
        here.close()


def save(run: Run, step: int, roles: local.Roles) -> None:
    assert roles.critic is not None
    learners = {"actor": roles.actor.learner, "critic": roles.critic.learner}
    state = {name: learner.state() for name, learner in learners.items()}
    tensors = {name: learner.tensors() for name, learner in learners.items()}
    checkpoints.save(run, step, tensors=tensors, state=state, keep_last=9)


def restore(roles: local.Roles, found: checkpoints.Checkpoint) -> None:
    assert roles.critic is not None
    roles.actor.learner.restore(found.tensors["actor"], found.state["actor"])
    roles.critic.learner.restore(found.tensors["critic"], found.state["critic"])


@pytest.fixture(scope="module")
def saved_by(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose step 1 is local's, and whose step 2 the two ranks write, which come first."""
    return Run.create(tmp_path_factory.mktemp("runs"), "saved", as_values(read_config(None, list(SETTINGS))))


def test_a_checkpoint_of_any_number_of_ranks_opens_with_any_other(
    far: far_away.RayRoles,
    two_steps_here: tuple[Config, local.LocalRoles, list[Ledger], list[dict[str, float]]],
    saved_by: Run,
) -> None:
    """Weights and moments bit for bit: local → ranks → ranks → local."""
    config, here, *_ = two_steps_here
    steps = saved_by.checkpoint_steps()
    if not steps:
        save(saved_by, 1, here)
    restore(far, checkpoints.load(saved_by, saved_by.checkpoint_steps()[-1]))
    save(saved_by, len(steps) + 2, far)

    first, last = (checkpoints.load(saved_by, step) for step in (1, len(steps) + 2))
    assert first.state == last.state
    for role, tensors in first.tensors.items():
        assert tensors.keys() == last.tensors[role].keys()
        assert all(torch.equal(tensor, last.tensors[role][name]) for name, tensor in tensors.items())
    assert len(list((last.path / "actor").iterdir())) == far.groups[0].ranks

    opened = local.build_roles(config)
    restore(opened, last)
    for mine, theirs in zip(here.actor.model.parameters(), opened.actor.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    # and the ranks that read it draw what local draws
    examples = here.batch(3, 4, 0)
    assert torch.equal(here.actor.generate(examples, 3)["token_ids"], far.actor.generate(examples, 3)["token_ids"])


def test_nothing_listens_beyond_loopback_and_tokens_are_asked_for(far: far_away.RayRoles) -> None:
    raylet: Any = importlib.import_module("ray._raylet")  # compiled, and its declarations leave these out
    assert raylet.get_authentication_mode() == raylet.AuthenticationMode.TOKEN
    listening = {address for process in descendants(os.getpid()) for address in listens_on(process)}
    assert listening, "Ray listens somewhere"
    assert all(address.is_loopback for address in listening), listening


def descendants(process: int) -> Iterator[int]:
    yield process
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from descendants(int(child))


def listens_on(process: int) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The local addresses of the process's listening TCP sockets."""
    try:
        links = [os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir()]
    except OSError:  # it has ended
        return
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                words = bytes.fromhex(fields[1].split(":")[0])
                address = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                found = ipaddress.ip_address(address)
                yield getattr(found, "ipv4_mapped", None) or found


def test_a_person_s_mistakes_are_one_sentence() -> None:
    for address in ("127.0.0.1:9", "nowhere", "no.such.host.invalid:6379"):
        with pytest.raises(ClusterError, match=r"^[^\n]+$"):
            _join(_address_of(address))
    with pytest.raises(ClusterError, match="lower ray"):
        far_away.build_roles(read_config(None, [*SETTINGS, "engine=ray", "ray.ranks=1000"]))
    with pytest.raises(SettingError, match="cpu_offload"):
        far_away.build_roles(read_config(None, [*SETTINGS, "engine=ray", "ray.cpu_offload=true"]))
    with pytest.raises(ClusterError, match="GPUs"):
        far_away.build_roles(read_config(None, [*SETTINGS, "engine=ray", "model.device=cuda"]))


def test_another_version_on_a_rank_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Rank.versions() | {"torch": "1.0.0"}
    monkeypatch.setattr(Rank, "versions", staticmethod(lambda: here))  # in this process; the rank has its own
    with pytest.raises(ClusterError, match=r"^rank 0 runs torch \S+ and this process 1\.0\.0; install the same[^\n]+$"):
        far_away.build_roles(read_config(None, [*SETTINGS, "engine=ray", "ray.ranks=1"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("ray.critic_ranks=1", "ray.reference_ranks=1", "ray.reward_ranks=1"),
        ("ray.reshard=always",),
        ("ray.activation_checkpointing=true",),
        ("model.lora.rank=4", "ray.reference_ranks=1"),
        ("actor.stop_kl=0.0001", "kl.loss_coef=0.1", "kl.reward_coef=0", "actor.entropy_coef=0.01"),
        ("estimator=grpo", "actor.loss_agg_mode=seq-mean-token-mean", "prompts_per_step=1", "ray.ranks=4"),
    ],
    ids=lambda settings: settings[0],
)
def test_settings_change_no_number(settings: tuple[str, ...]) -> None:
    config = read_config(None, [*SETTINGS, *(s for s in settings if not s.startswith("ray."))])
    here = local.build_roles(config)
    there = far_away.build_roles(read_config(None, [*SETTINGS, "engine=ray", *settings]))
    try:
        for step in (1, 2):
            left, right = filled(config, here), filled(config, there)
            for roles, ledger in ((here, left), (there, right)):
                if roles.critic is not None:
                    roles.critic.update(ledger, step)
                roles.actor.update(ledger, step)
            for name, column in left.columns().items():
                wrong = float((right[name].float() - column.float()).abs().max())
                # a KL is a difference of log-probs, and has their rounding whatever its own size
                assert wrong <= 1e-4 * float(column.float().abs().max()) + 1e-5, (name, step)
        paid, found = (roles.actor.attention(left)["attention_weights"] for roles in (here, there))
        assert float((paid - found).abs().max()) <= 1e-4
    finally:
        there.close()


@pytest.mark.slow
def test_mixed_precision_is_near() -> None:
    config = read_config(None, [*SETTINGS, "engine=ray", "ray.mixed_precision=bfloat16"])
    here, there = local.build_roles(config), far_away.build_roles(config)
    try:
        ledger = filled(config, there)
        exact = here.actor.log_probs(ledger)["old_log_probs"]
        gap = (ledger["old_log_probs"] - exact).abs()
        assert 0 < float(gap.max()) < 0.5
        assert there.actor.dtype == torch.bfloat16
        assert all(torch.isfinite(torch.tensor(list(there.actor.update(ledger, 1).values()))))
    finally:
        there.close()


def test_layers_are_sharded_one_by_one() -> None:
    from mingce.engine.sharding import decoder_layers

    actor = local.build_actor(read_config(None, list(SETTINGS)))
    model: Any = actor.model
    layers = model.config.num_hidden_layers
    assert len(decoder_layers(actor.model)) == len(decoder_layers(ValueModel.from_causal_lm(actor.model))) == layers
