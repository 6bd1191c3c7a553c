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
    weights: list[float] = field(default_factory=list)
    held_out: list[str] = field(default_factory=list)
    prompt_key: list[str] = field(default_factory=list)
    answer_key: list[str] = field(default_factory=list)
    source_key: list[str] = field(default_factory=list)
    system: str | None = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
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
class JudgeConfig:
    """A language model behind an OpenAI-compatible address that grades answers."""

    url: str | None = None
    model: str | None = None
    prompt: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    best: float = 10.0
    weight: float = 1.0
    at_once: int = 16


@dataclass
class RewardConfig:
    """What pays, beyond the task's own score."""

    function: list[str] = field(default_factory=list)
    function_weight: list[float] = field(default_factory=lambda: [1.0])
    model: str | None = None
    model_weight: float = 1.0
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    task_weight: float = 1.0
    full_marks: float = 1.0
    workers: int = 0
    time_limit: float | None = None
    on_error: str = "stop"

    @property
    def scores_files(self) -> bool:
        """Whether anything here scores answers to data files, which then need no scorer of their own."""
        return bool(self.function) or self.model is not None or self.judge.url is not None

    @property
    def function_weights(self) -> list[float]:
        """A weight for each function; one number is for all of them."""
        return self.function_weight * (len(self.function) if len(self.function_weight) == 1 else 1)


@dataclass
class AgentConfig:
    """Conversations of several turns, with tools or another environment."""

    tools: list[str] = field(default_factory=list)
    mcp: list[str] = field(default_factory=list)
    tool_format: str = "auto"
    max_turns: int = 4
    turn_tokens: int = 0
    observation_tokens: int = 0
    mask_observations: bool = True
    workers: int = 8
    time_limit: float = 30.0
    on_error: str = "0"


@dataclass
class CreditConfig:
    """From rewards to advantages."""

    gamma: float = 1.0
    lam: float = 0.95
    n: int = 5
    k: int = 3
    truncation: str = "zero"
    whiten: str = "auto"


LARGEST_BETA = 0.01
WHOLE_ANSWER = 0.16
BY_LENGTH = -1.0
"""kl.reward_coef that is chosen by the length of answers: a nat on every token costs a whole answer this much at most,
so that a long answer's KL does not outweigh a score of 1."""


@dataclass
class KLConfig:
    """The price of drifting from the reference."""

    reward_coef: float = BY_LENGTH
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
    budget: float = 300.0


@dataclass
class AuditConfig:
    """Independent code recomputes the ledger while training."""

    every: int = 10
    stop: bool = True


@dataclass
class KeepConfig:
    """What is written while training."""

    ledger_every: int = 1
    validation_prompts: int = 16
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
    agent: AgentConfig = field(default_factory=AgentConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    kl: KLConfig = field(default_factory=KLConfig)
    actor: ActorConfig = field(default_factory=ActorConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    keep: KeepConfig = field(default_factory=KeepConfig)

    def __post_init__(self) -> None:
        """Chooses β where it is left to the length: none in the reward where the loss has the KL."""
        if self.kl.reward_coef == BY_LENGTH:
            fitting = min(LARGEST_BETA, WHOLE_ANSWER / max(self.sampling.max_new_tokens, 1))
            self.kl.reward_coef = 0.0 if self.kl.loss_coef > 0 else fitting

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
        largest_beta=LARGEST_BETA,
        whole_answer=WHOLE_ANSWER,
    )


def value_of(config: Config, key: str) -> Any:
    """The value of a setting by its dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value
