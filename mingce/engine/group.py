"""Processes that work together: made, asked all at once, watched, and made again when one is lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import mingce.base.errors
from mingce.base.errors import ClusterError, MingceError, RankFault
from mingce.base.lang import display_lang
from mingce.config import Config, as_values
from mingce.engine.cluster import PATIENCE, expect_cluster, lost, ray_package
from mingce.engine.rank import Facts, Mistake, Rank
from mingce.engine.shares import Place

LOOK = 2.0
"""Seconds between looks at whether the cluster is still there."""

GRACE = 5.0
"""Seconds for Ray to notice that a process died, once a rank that talks to it has failed."""

DIED = "its process died"


class Group:
    """`ranks` processes that hold the same roles."""

    def __init__(self, config: Config, roles: Sequence[str], ranks: int, gpus: int):
        self.config, self.roles, self.ranks, self.gpus = config, tuple(roles), ranks, gpus
        self.actors: list[Any] = []
        self.placement: Any = None
        self.processes: list[tuple[str, int]] = []
        """Each rank's node and process number there."""
        self.facts: Facts | None = None

    @property
    def name(self) -> str:
        return "+".join(self.roles)

    def start(self) -> None:
        """Places the processes and has them load their roles."""
        expect_cluster()
        ray = ray_package()
        each = {"CPU": float(self.config.ray.cpus)} | ({"GPU": float(self.gpus)} if self.gpus else {})
        self.placement = ray.util.placement_group([each] * self.ranks, strategy="PACK")
        if not self.placement.wait(PATIENCE):
            raise ClusterError(
                f"no room for {self.ranks} ranks ({self.name}) within {PATIENCE:g} s: the cluster is busy; wait for "
                "the others, lower ray.ranks, or add nodes with `ray start --address`."
            )
        remote = ray.remote(Rank)
        self.actors = [
            remote.options(
                num_cpus=each["CPU"],
                num_gpus=self.gpus,
                scheduling_strategy=ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                    self.placement, rank
                ),
            ).remote(as_values(self.config), Place(rank, self.ranks), self.roles, display_lang())
            for rank in range(self.ranks)
        ]
        here = Rank.versions()
        nodes = self.call("introduce")
        for rank, (there, *_) in enumerate(nodes):
            for package, version in there.items():
                if version != here[package]:
                    raise ClusterError(
                        f"rank {rank} runs {package} {version} and this process {here[package]}; install the same "
                        "version on every node."
                    )
        hosts = [host for _, host, _ in nodes]
        self.processes = [(host, process) for _, host, process in nodes]
        port = self.each("open_store", [(hosts[0],)])[0]
        self.facts = self.each("build", [(hosts[0], port, host) for host in hosts])[0]

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """The answers of all ranks to the same question, in order."""
        return self.each(method, [arguments] * self.ranks)

    def each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers of the first `len(arguments)` ranks, each to its own question.

        A rank that dies, fails or does not answer in time is a RankFault, and the end of all ranks of the group: those
        that wait for it would wait for ever.
        """
        expect_cluster()
        ray = ray_package()
        rank_of = {
            actor.run.remote(method, *one): rank
            for rank, (actor, one) in enumerate(zip(self.actors, arguments, strict=False))
        }
        answers: list[Any] = [None] * len(rank_of)
        seconds = self.config.ray.timeout
        waiting, until = list(rank_of), time.monotonic() + seconds
        while waiting:
            done, waiting = ray.wait(waiting, timeout=min(max(until - time.monotonic(), 0.0), LOOK))
            if not done:
                expect_cluster()
            if not done and time.monotonic() >= until:
                late = ", ".join(self._who(rank_of[ref]) for ref in waiting)
                self.kill()
                raise RankFault(f"{late} did not finish {method} within {seconds:g} s (ray.timeout)")
            for ref in done:
                answers[rank_of[ref]] = self._answer(ref, rank_of, method)
        return answers

    def _answer(self, ref: Any, rank_of: dict[Any, int], method: str) -> Any:
        ray = ray_package()
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayError as error:
            expect_cluster(error)
            died = isinstance(error, ray.exceptions.ActorDiedError)
            cause = ref if died else self._died(rank_of, ref)
            fault = f"{self._who(rank_of[cause])} was lost in {method}: {_reason(error) if cause is ref else DIED}"
            self.kill()
            raise RankFault(fault) from error
        if isinstance(answer, Mistake):
            self.kill()
            raise _as_error(answer)
        return answer

    def _died(self, rank_of: dict[Any, int], failed: Any) -> Any:
        """The question of a rank whose process died, or `failed`: its neighbour may fail before Ray notices."""
        ray = ray_package()
        others = [ref for ref in rank_of if ref is not failed]
        until = time.monotonic() + GRACE
        while others and (left := until - time.monotonic()) > 0:
            done, others = ray.wait(others, timeout=left)
            for ref in done:
                try:
                    ray.get(ref)
                except ray.exceptions.ActorDiedError:
                    return ref
                except ray.exceptions.RayError:
                    continue
        return failed

    def _who(self, rank: int) -> str:
        where = "(process {1} on {0})".format(*self.processes[rank]) if self.processes else ""
        return f"rank {rank} of {self.name} {where}".rstrip()

    def kill(self) -> None:
        """Ends every process of the group, whatever it is doing."""
        if lost():
            return  # they end with their cluster
        ray = ray_package()
        for actor in self.actors:
            ray.kill(actor)
        self.actors, self.processes = [], []
        if self.placement is not None:
            ray.util.remove_placement_group(self.placement)
            self.placement = None


def _reason(error: Exception) -> str:
    """What Ray says, in one line."""
    exceptions = ray_package().exceptions
    if isinstance(error, exceptions.RayTaskError):
        cause = error.cause
        return f"{type(cause).__name__}: {str(cause).strip().splitlines()[0] if str(cause).strip() else ''}".rstrip(
            ": "
        )
    if isinstance(error, exceptions.ActorDiedError):
        return DIED
    return type(error).__name__


def _as_error(mistake: Mistake) -> MingceError:
    """The error as it was on the rank, without what only its constructor knows."""
    kind = getattr(mingce.base.errors, mistake.kind, MingceError)
    error: MingceError = kind.__new__(kind)
    error.args = (mistake.sentence,)
    return error
