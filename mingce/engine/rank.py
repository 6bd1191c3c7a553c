"""One process of a group: holds its part of every role it was given, and does what the driver asks of all ranks alike.

It runs the same roles as the local engine, on sharded models and on its share of the rows.
"""

from __future__ import annotations

import fcntl
import os
import platform
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.distributed.device_mesh import init_device_mesh

import mingce
from mingce.algorithms.own import load_own
from mingce.base.errors import MingceError
from mingce.base.lang import choose_lang
from mingce.config import config_of
from mingce.engine.cluster import ray_package
from mingce.engine.local import build_actor, build_critic, build_reference, task_of, worlds_of
from mingce.engine.sharded_learner import ShardedLearner
from mingce.engine.sharding import copy_weights, reshards, shard
from mingce.engine.shares import Place, Share
from mingce.ledger import Ledger
from mingce.models.loading import clone_frozen
from mingce.models.sampling import Generation, Sampling
from mingce.roles.actor import LocalActor
from mingce.roles.critic import LocalCritic
from mingce.roles.reference import LocalReference
from mingce.roles.reward import extra_members, reward_scorer
from mingce.roles.worlds import Play
from mingce.tasks.base import Example, Score
from mingce.tasks.combined import BatchScorer

Columns = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Mistake:
    """A person's mistake, found on a rank; the driver reports it as it would be reported here."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class Facts:
    """What the driver needs to know of a policy it does not hold."""

    size: int
    dtype: torch.dtype
    pad_id: int
    sampling: Sampling


class Rank:
    """A process. Methods that gather weights are called on all ranks of a group at once."""

    def __init__(self, settings: dict[str, Any], place: Place, roles: Sequence[str], lang: str):
        choose_lang(lang)
        self.config, self.place, self.roles = config_of(settings), place, tuple(roles)
        self.config.threads = self.config.threads or self.config.ray.cpus
        torch.set_num_threads(self.config.threads)
        self.actor: LocalActor | None = None  # the driver calls roles by these names
        self.critic: LocalCritic | None = None
        self.reference: LocalReference | None = None
        self.scorer: BatchScorer | None = None
        self.learners: dict[str, ShardedLearner] = {}

    def run(self, method: str, *arguments: Any) -> Any:
        """`method(*arguments)`, a person's mistake as a value: it is no reason to start the process again."""
        try:
            return getattr(self, method)(*arguments)
        except MingceError as error:
            return Mistake(type(error).__name__, str(error))

    # ── beginning ────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def versions() -> dict[str, str]:
        """What must be the same everywhere."""
        return {"mingce": mingce.__version__, "torch": str(torch.__version__), "python": platform.python_version()}

    def introduce(self) -> tuple[dict[str, str], str, int]:
        """The versions here, this node's address, and the process's number."""
        return self.versions(), str(ray_package().util.get_node_ip_address()), os.getpid()

    def open_store(self, host: str) -> int:
        """The first rank's: where the others meet. Listens on `host` only; returns the port."""
        listener = socket.socket()
        listener.bind((host, 0))
        port = int(listener.getsockname()[1])
        self._store = TCPStore(
            host,
            port,
            self.place.ranks,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        return port

    def build(self, host: str, port: int, address: str) -> Facts | None:
        """Meets the others, loads the models and keeps this rank's shards. `address` is this node's."""
        torch.manual_seed(self.config.seed)
        if "actor" in self.roles:
            load_own(loss=self.config.actor.loss)  # advantages are the driver's
        if "reward" in self.roles:
            task, task_scores = task_of(self.config)
            members = extra_members(self.config.reward)
            self.scorer = reward_scorer(task, self.config.reward, members, task_scores=task_scores)
            self.scorer.start()
        if set(self.roles) == {"reward"}:
            return None
        actor = build_actor(self.config)
        facts = Facts(actor.size, actor.dtype, actor.pad_id, actor.sampling)
        self.device = next(actor.model.parameters()).device
        self._meet(host, port, address)
        mesh = init_device_mesh(self.device.type, (self.place.ranks,))
        c = self.config
        if "critic" in self.roles:
            self.critic = build_critic(c, actor, share=False)  # each model is sharded by itself
            shard(self.critic.model, mesh, c.ray)
            self.critic.learner = self._learner("critic", self.critic)
        if "reference" in self.roles:
            self.reference = build_reference(c, actor)
            if not self.reference.shares_weights:
                shard(self.reference.model, mesh, c.ray)
        if "actor" in self.roles:
            self.actor = actor
            actor.sampler = clone_frozen(actor.model)
        if "actor" in self.roles or (self.reference is not None and self.reference.shares_weights):
            shard(actor.model, mesh, c.ray)
        if self.actor is not None:
            self.actor.learner = self._learner("actor", self.actor)
        return facts

    def _meet(self, host: str, port: int, address: str) -> None:
        name = _interface(address)
        if name is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = name
        limit = timedelta(seconds=self.config.ray.timeout)
        store = (
            self._store
            if self.place.rank == 0
            else TCPStore(host, port, self.place.ranks, is_master=False, wait_for_workers=False, timeout=limit)
        )
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo",
            store=store,
            rank=self.place.rank,
            world_size=self.place.ranks,
            timeout=limit,
        )

    def _learner(self, name: str, role: LocalActor | LocalCritic) -> ShardedLearner:
        c = self.config
        self.learners[name] = ShardedLearner(
            role.model, c.actor if name == "actor" else c.critic, c.steps, self.place, reshards(role.model, c.ray)
        )
        return self.learners[name]

    # ── what the roles do ────────────────────────────────────────────────────────────────────────────────────────

    def draw(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seeds: Sequence[int], n: int
    ) -> tuple[Columns, list[str]]:
        """Responses to this rank's own prompts."""
        assert self.actor is not None
        drawn: Generation = self.actor.draw(prompts, sampling, seeds, n)
        columns = {"token_ids": drawn.token_ids, "attention_mask": drawn.attention_mask, "log_probs": drawn.log_probs}
        return _arrays(columns), drawn.finish_reasons

    def play(
        self, examples: Sequence[Example], sampling: Sampling, seeds: Sequence[int], world_seeds: Sequence[int]
    ) -> list[Play]:
        """Conversations with environments of this process."""
        assert self.actor is not None
        if self.actor.worlds is None:
            self.actor.worlds = worlds_of(self.config, task_of(self.config)[0], self.actor)
        return self.actor.play(examples, sampling, seeds, world_seeds)

    def columns(self, role: str, method: str, ledger: Ledger) -> tuple[list[int], Columns]:
        """A role's method on this rank's rows of a ledger: which rows they are, and their columns."""
        share = Share(ledger.to(self.device), self.place)
        return share.whole_rows.tolist(), _arrays(getattr(getattr(self, role), method)(share))

    def update(self, role: str, ledger: Ledger, step: int) -> tuple[list[int], Columns, dict[str, float], int]:
        """Learns from the whole ledger, together with the other ranks.

        The rows whose columns were last computed here, the columns, the report, and the updates so far.
        """
        learner, here = self.learners[role], ledger.to(self.device)
        report = getattr(self, role).update(here, step)
        self._refresh(role)
        columns = {name: values[learner.mine] for name, values in here.columns().items() if name not in ledger}
        return learner.mine.nonzero().squeeze(1).tolist(), _arrays(columns), report, learner.updates

    def _refresh(self, role: str) -> None:
        """The weights that draw follow those that learn."""
        if role == "actor" and self.actor is not None:
            copy_weights(self.actor.model, self.actor.sampler)

    def score(self, examples: Sequence[Example], responses: Sequence[str], seeds: Sequence[int]) -> list[Score]:
        """What this rank's own responses earn."""
        assert self.scorer is not None
        return self.scorer.score(examples, responses, seeds)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────────────────

    def learner_state(self, role: str) -> dict[str, Any]:
        return self.learners[role].state()

    def write(self, role: str, directory: Path) -> None:
        self.learners[role].write(directory)

    def read(self, role: str, paths: Sequence[Path], state: Mapping[str, Any]) -> None:
        self.learners[role].read(paths, state)
        self._refresh(role)

    def close(self) -> None:
        """Ends scoring processes."""
        if self.scorer is not None:
            self.scorer.close()


def _arrays(columns: Mapping[str, Tensor]) -> Columns:
    return {name: values.cpu().numpy() for name, values in columns.items()}


def _interface(address: str) -> str | None:
    """The network interface that has this address, lest gloo choose another; None where it cannot be told."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
            except OSError:  # an interface without an address, or not Linux
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
