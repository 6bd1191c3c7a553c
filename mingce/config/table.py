"""The table of settings: a field each, with its default. What each means is in mingce/texts/settings.{zh,en}.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any

from mingce.base.texts import named, texts
from mingce.specs import AGGREGATIONS, ESTIMATORS, KL_KINDS, POLICY_LOSSES
from mingce.specs.estimators import GAE


@dataclass
class DataConfig:
    """Where prompts come from, beyond the task's name."""

    lang: str = "zh"
    train: list[str] = field(default_factory=list)
    held_out: list[str] = field(default_factory=list)
    max_prompt_tokens: int = 1024
    overlong: str = "filter"
    chat: bool = True
    size: int = 1000
    held_out_size: int = 100
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class LoraConfig:
    """Low-rank adapters."""

    rank: int = 0
    alpha: float = 32.0
    target_modules: list[str] = field(default_factory=list)


@dataclass
class ModelConfig:
    """The policy, from which reference and critic start."""

    path: str = "tiny"
    dtype: str = "auto"
    device: str = "auto"
    lora: LoraConfig = field(default_factory=LoraConfig)


@dataclass
class SamplingConfig:
    """How responses are drawn."""

    max_new_tokens: int = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: list[str] = field(default_factory=list)
    max_rows: int = 256


@dataclass
class RewardConfig:
    """What pays, beyond the task's own score."""

    function: str | None = None
    function_weight: float = 1.0
    model: str | None = None
    model_weight: float = 1.0
    task_weight: float = 1.0
    full_marks: float = 1.0
    workers: int = 0
    time_limit: float | None = None
    on_error: str = "stop"


@dataclass
class CreditConfig:
    """From rewards to advantages."""

    gamma: float = 1.0
    lam: float = 0.95
    n: int = 5
    k: int = 3
    truncation: str = "zero"
    whiten: str = "auto"


@dataclass
class KLConfig:
    """The price of drifting from the reference."""

    reward_coef: float = 0.01
    loss_coef: float = 0.0
    estimator: str = "k1"
    loss_estimator: str = "k3+"
    clamp: float | None = None
    adaptive: bool = False
    target: float = 0.1
    horizon: int = 10000


@dataclass
class LearnerConfig:
    """How weights are updated."""

    lr: float = 3e-4
    epochs: int = 2
    grad_clip: float = 1.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    warmup_steps: int = 0
    schedule: str = "constant"


@dataclass
class ActorConfig(LearnerConfig):
    """The policy's updates."""

    loss: str = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = 3.0
    loss_agg_mode: str = "token-mean"
    entropy_coef: float = 0.0
    stop_kl: float | None = None


@dataclass
class CriticConfig(LearnerConfig):
    """The critic's updates."""

    lr: float = 1e-3
    path: str | None = None
    lora: bool = True
    value_clip: float | None = 0.5
    minibatch_rollouts: int = 64
    warmup: int = 0


@dataclass
class ValidationConfig:
    """Held-out prompts."""

    every: int = 10
    examples: int = 200


@dataclass
class AuditConfig:
    """Independent code recomputes the ledger while training."""

    every: int = 10
    stop: bool = True


@dataclass
class KeepConfig:
    """What is written while training."""

    ledger_every: int = 1
    checkpoint_every: int = 10
    last: int = 2
    best: int = 1
    optimizer: int = 2
    loggers: list[str] = field(default_factory=list)


LARGE = 1_000_000_000
"""With ray.reshard=auto, models of this many parameters or more free gathered weights after use."""


@dataclass
class RayConfig:
    """engine=ray: the roles as groups of processes, models sharded over each group (docs/en/how-to/on-a-cluster.md)."""

    address: str = "local"
    ranks: int = 2
    critic_ranks: int = 0
    reference_ranks: int = 0
    reward_ranks: int = 0
    cpus: int = 1
    reshard: str = "auto"
    mixed_precision: str = "none"
    activation_checkpointing: bool = False
    cpu_offload: bool = False
    timeout: float = 600.0
    max_restarts: int = 3

    def reshards(self, parameters: int) -> bool:
        """Whether a model of that size frees gathered weights after every use."""
        return self.reshard == "always" or (self.reshard == "auto" and parameters >= LARGE)


@dataclass
class Config:
    """Every setting of a run."""

    task: str = "arithmetic"
    estimator: str = GAE
    steps: int = 40
    prompts_per_step: int = 64
    samples_per_prompt: int = 4
    minibatch_rollouts: int = 128
    micro_batch_tokens: int = 2048
    seed: int = 0
    threads: int = 0
    name: str | None = None
    root: str = "runs"
    engine: str = "local"
    ray: RayConfig = field(default_factory=RayConfig)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    kl: KLConfig = field(default_factory=KLConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    keep: KeepConfig = field(default_factory=KeepConfig)

    @property
    def critic_has_adapters(self) -> bool:
        """Whether the critic learns adapters and a head on the policy's frozen weights."""
        return self.model.lora.rank > 0 and self.critic.lora and self.critic.path is None


def settings(section: Any = Config, prefix: str = "") -> Iterator[tuple[str, Field[Any], Any]]:
    """(dotted key, field, default) of every setting, in order."""
    example = section()
    for setting in fields(section):
        default = getattr(example, setting.name)
        if is_dataclass(default):
            yield from settings(type(default), f"{prefix}{setting.name}.")
        else:
            yield prefix + setting.name, setting, default


def describe(key: str, lang: str) -> str:
    """What a setting means, with the names there are to choose from."""
    comma, semicolon, colon = ("、", "；", "：") if lang == "zh" else (", ", "; ", ": ")
    losses = (f"{loss.name}{colon}{loss.zh if lang == 'zh' else loss.en}" for loss in POLICY_LOSSES.values())
    return named(texts("settings", lang)["settings"])[key].format(
        estimators=comma.join(ESTIMATORS),
        unwhitened=comma.join(estimator.name for estimator in ESTIMATORS.values() if not estimator.whitens),
        kl_kinds=comma.join(KL_KINDS),
        aggregations=comma.join(AGGREGATIONS),
        losses=semicolon.join(losses),
    )


def value_of(config: Config, key: str) -> Any:
    """The value of a setting by its dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value
