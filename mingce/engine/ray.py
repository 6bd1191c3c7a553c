"""The roles on a Ray cluster: in the driver they only call groups of processes, which do what the local roles do.

The driver keeps the ledger, assigns credit and decides what is learned from; ranks hold weights. See
docs/en/how-to/on-a-cluster.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mingce.base.errors import ClusterError, RankFault, SettingError
from mingce.config import Config
from mingce.engine.cluster import Cluster, expect_cluster, ray_package
from mingce.engine.group import Group
from mingce.engine.local import Roles, fitting_prompts, load_specs, needs_reference, reward_role, task_of, worlds_of
from mingce.engine.rank import Facts
from mingce.engine.shares import balanced
from mingce.ledger import Ledger
from mingce.models.loading import load_tokenizer
from mingce.models.sampling import Generation, Sampling
from mingce.record.tensor_files import Stored
from mingce.roles.actor import roll_out
from mingce.roles.critic import fill_bootstrap
from mingce.roles.learner import OnProgress
from mingce.roles.reward import Judge, extra_members
from mingce.roles.worlds import Play, Worlds
from mingce.specs import find_estimator
from mingce.tasks.base import Example, Score

LEARNED_FROM = ("old_log_probs", "ref_log_probs", "advantages", "whitened_advantages", "values", "returns")


@dataclass(frozen=True)
class RayRoles(Roles):
    """The four as groups of processes."""

    cluster: Cluster
    groups: list[Group]
    most_restarts: int
    faults: list[RankFault] = field(default_factory=list)
    """What made it necessary to replace processes so far."""

    @property
    def restarts(self) -> int:
        return len(self.faults)

    def rebuild(self, fault: RankFault) -> None:
        """Restarts all groups with the weights the run began with."""
        self.faults.append(fault)
        if self.restarts > self.most_restarts:
            raise ClusterError(
                f"{fault}; processes were replaced {self.most_restarts} times already (ray.max_restarts), so the run "
                "stops: see what ends them, then resume."
            ) from fault
        for group in self.groups:
            group.kill()
        for group in self.groups:
            group.start()
        for learner in self.learners.values():
            learner.updates = 0

    def close(self) -> None:
        for group in self.groups:
            group.kill()
        self.judge.close()
        self.cluster.close()


def build_roles(config: Config, note: Callable[[str], None] = lambda sentence: None) -> RayRoles:
    """Joins or starts the cluster and the groups on it; everything a person may have got wrong shows here."""
    r = config.ray
    load_specs(config)
    task, _ = task_of(config)
    tokenizer = load_tokenizer(config.model.path)
    train, held_out = fitting_prompts(config, task, tokenizer, note)
    ranks_of = {"actor": r.ranks, "reward": r.reward_ranks}
    if find_estimator(config.estimator).needs_critic:
        ranks_of["critic"] = r.critic_ranks
    if needs_reference(config):
        ranks_of["reference"] = r.reference_ranks
    together = [role for role, ranks in ranks_of.items() if role == "actor" or not ranks]
    pools = {tuple(together): r.ranks} | {(role,): ranks for role, ranks in ranks_of.items() if role not in together}
    cluster = Cluster(r, sum(pools.values()))
    groups: list[Group] = []
    try:
        gpus = _gpus(config, sum(ranks for roles, ranks in pools.items() if roles != ("reward",)))
        cluster.expect(sum(pools.values()), r.cpus)
        groups += [Group(config, roles, ranks, 0 if roles == ("reward",) else gpus) for roles, ranks in pools.items()]
        for group in groups:
            group.start()
    except BaseException:
        for group in groups:
            group.kill()
        cluster.close()
        raise
    of = {role: group for group in groups for role in group.roles}
    facts = of["actor"].facts
    assert facts is not None
    actor = RayActor(of["actor"], facts, tokenizer, config)
    actor.worlds = worlds_of(config, task, actor)
    return RayRoles(
        actor,
        RayCritic(of["critic"], config) if "critic" in of else None,
        RayReference(of["reference"]) if "reference" in of else None,
        reward_role(config, RayScorer(of["reward"]), actor),
        Judge(task, config.reward, extra_members(config.reward)),
        task,
        tokenizer,
        train,
        held_out,
        cluster,
        groups,
        r.max_restarts,
    )


def _gpus(config: Config, processes: int) -> int:
    """GPUs of a process: one where the models are to be on GPUs."""
    there = int(ray_package().cluster_resources().get("GPU", 0))
    if config.model.device.startswith("cuda") and there < processes:
        raise ClusterError(f"the cluster has {there} GPUs and {processes} ranks need one each; lower ray.ranks.")
    gpus = int(config.model.device != "cpu" and there >= processes)
    if config.ray.cpu_offload and not gpus:
        raise SettingError("ray.cpu_offload keeps shards off GPUs, and there are none; leave it out.")
    return gpus


def _share(ledger: Ledger) -> Any:
    """The ledger in the object store, where ranks of a node read it without a copy."""
    expect_cluster()
    return ray_package().put(ledger)


def _columns(group: Group, role: str, method: str, ledger: Ledger) -> dict[str, Tensor]:
    """The columns of a role's method of the whole ledger, each row from the rank that has it."""
    return _gathered(ledger, group.call("columns", role, method, _share(ledger)))


def _gathered(ledger: Ledger, parts: Sequence[tuple[list[int], Mapping[str, Any]]]) -> dict[str, Tensor]:
    whole: dict[str, Tensor] = {}
    for rows, columns in parts:
        for name, array in columns.items():
            values = torch.tensor(array)
            if name not in whole:
                whole[name] = values.new_zeros((len(ledger), ledger.width)[: values.dim()])
            whole[name][rows] = values
    return whole


class RayLearner:
    """The optimizers of a group, of which this process only counts the updates."""

    def __init__(self, group: Group, role: str):
        self.group, self.role, self.updates = group, role, 0

    def update(self, ledger: Ledger, step: int) -> dict[str, float]:
        """Has the group learn; the ledger keeps the columns that the loss used."""
        answers = self.group.call("update", self.role, _share(ledger.only(*LEARNED_FROM)), step)
        ledger.fill(_gathered(ledger, [(rows, columns) for rows, columns, *_ in answers]))
        report: dict[str, float]
        _, _, report, self.updates = answers[0]
        return report

    def tensors(self) -> Callable[[Path], object]:
        """Has every rank write its part into a directory."""
        return lambda directory: self.group.call("write", self.role, directory.resolve())

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.group.call("learner_state", self.role)[0]
        return state

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        assert isinstance(tensors, Stored), "ranks read a checkpoint themselves"
        self.group.call("read", self.role, [path.resolve() for path in tensors.paths], dict(state))
        self.updates = int(state["updates"])


class RayActor:
    """The policy, on ranks. Prompts are shared out whole, with all their samples, so that each is read once."""

    def __init__(self, group: Group, facts: Facts, tokenizer: PreTrainedTokenizerBase, config: Config):
        self.group, self.facts, self.tokenizer, self.config = group, facts, tokenizer, config
        self.pad_id, self.sampling = facts.pad_id, facts.sampling
        self.worlds: Worlds | None = None
        self.learner = RayLearner(group, "actor")

    @property
    def size(self) -> int:
        return self.facts.size

    @property
    def dtype(self) -> torch.dtype:
        precision = self.config.ray.mixed_precision
        return self.facts.dtype if precision == "none" else getattr(torch, precision)

    def generate(self, examples: Sequence[Example], step: int, on_progress: OnProgress | None = None) -> Ledger:
        return roll_out(self, examples, step, on_progress)

    def draw(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seeds: Sequence[int],
        n: int = 1,
        on_progress: OnProgress | None = None,
    ) -> Generation:
        shares = balanced([len(prompt) + sampling.max_new_tokens for prompt in prompts], self.group.ranks)
        requests = [
            ([prompts[i] for i in share], sampling, [seeds[row] for row in _rows(share, n)], n)
            for share in shares
            if share
        ]
        answers = self.group.each("draw", requests)
        rows, width = len(prompts) * n, max((part["token_ids"].shape[1] for part, _ in answers), default=0)
        token_ids = torch.full((rows, width), self.pad_id, dtype=torch.long)
        mask, log_probs = torch.zeros((rows, width), dtype=torch.bool), torch.zeros((rows, width))
        reasons = [""] * rows
        for share, (part, ended) in zip(filter(None, shares), answers, strict=True):
            here, wide = _rows(share, n), part["token_ids"].shape[1]
            token_ids[here, :wide] = torch.tensor(part["token_ids"])
            mask[here, :wide] = torch.tensor(part["attention_mask"])
            log_probs[here, :wide] = torch.tensor(part["log_probs"])
            for row, reason in zip(here, ended, strict=True):
                reasons[row] = reason
        if on_progress is not None:
            on_progress(rows, int(mask.sum()))
        return Generation(token_ids, mask, log_probs, reasons)

    def play(
        self,
        examples: Sequence[Example],
        sampling: Sampling,
        seeds: Sequence[int],
        world_seeds: Sequence[int],
        on_progress: OnProgress | None = None,
    ) -> list[Play]:
        """Each rank's conversations with environments of its own, next to the policy, and beside its decoding."""
        samples: dict[int, list[int]] = {}  # all of a prompt's have one seed, and stay together
        for row, seed in enumerate(world_seeds):
            samples.setdefault(seed, []).append(row)
        together = list(samples.values())
        shares = [
            [row for place in share for row in together[place]]
            for share in balanced([len(rows) for rows in together], self.group.ranks)
            if share
        ]
        requests = [
            ([examples[i] for i in share], sampling, [seeds[i] for i in share], [world_seeds[i] for i in share])
            for share in shares
        ]
        plays: dict[int, Play] = {}
        for share, part in zip(shares, self.group.each("play", requests), strict=True):
            plays |= dict(zip(share, part, strict=True))
        if on_progress is not None:
            on_progress(len(plays), sum(one.tokens for one in plays.values()))
        return [plays[row] for row in range(len(examples))]

    def log_probs(self, ledger: Ledger) -> dict[str, Tensor]:
        return _columns(self.group, "actor", "log_probs", ledger.only())

    def attention(self, ledger: Ledger) -> dict[str, Tensor]:
        return _columns(self.group, "actor", "attention", ledger.only())

    def ratios(self, ledger: Ledger) -> dict[str, Tensor]:
        return _columns(self.group, "actor", "ratios", ledger.only(*LEARNED_FROM))

    def update(self, ledger: Ledger, step: int, on_progress: OnProgress = lambda done, total: None) -> dict[str, float]:
        return self.learner.update(ledger, step)


def _rows(prompts: Sequence[int], n: int) -> list[int]:
    """The rows of these prompts' samples."""
    return [prompt * n + sample for prompt in prompts for sample in range(n)]


class RayCritic:
    """The value model, on ranks."""

    def __init__(self, group: Group, config: Config):
        self.group, self.config = group, config
        self.learner = RayLearner(group, "critic")

    def values(self, ledger: Ledger) -> dict[str, Tensor]:
        return fill_bootstrap(ledger, _columns(self.group, "critic", "all_values", ledger.only()))

    def update(self, ledger: Ledger, step: int, on_progress: OnProgress = lambda done, total: None) -> dict[str, float]:
        return self.learner.update(ledger, step)


class RayReference:
    """The policy as it was at the start, on ranks."""

    def __init__(self, group: Group):
        self.group = group

    def log_probs(self, ledger: Ledger) -> dict[str, Tensor]:
        return _columns(self.group, "reference", "log_probs", ledger.only())


class RayScorer:
    """Scores on ranks, responses shared out by their length."""

    name = "ray"

    def __init__(self, group: Group):
        self.group = group

    def start(self) -> None:
        """The processes were started with their group."""

    def score(
        self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[Score]:
        shares = [share for share in balanced([len(text) for text in responses], self.group.ranks) if share]
        seeds = range(len(examples)) if seeds is None else seeds
        requests = [
            ([examples[i] for i in share], [responses[i] for i in share], [seeds[i] for i in share]) for share in shares
        ]
        scores: dict[int, Score] = {}
        for share, part in zip(shares, self.group.each("score", requests), strict=True):
            scores |= dict(zip(share, part, strict=True))
        return [scores[i] for i in range(len(examples))]

    def close(self) -> None:
        """The processes end with their group."""
