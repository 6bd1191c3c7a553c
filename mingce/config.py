"""The settings of a run: typed, documented in two languages, overridable as `key=value`.

`read_config(recipe, ["lam=0.9", "critic.lr=1e-3"])` starts from the defaults here, lays a recipe (YAML) over them and the
overrides over that. An unknown key is an error that offers the nearest one. docs/en/reference/config.md is generated from this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import Field, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from mingce.errors import SettingError, UnknownNameError
from mingce.lang import LANGS
from mingce.reading import parse_yaml, read_regular
from mingce.specs import AGGREGATIONS, ESTIMATORS, KL_KINDS, POLICY_LOSSES, find_kl
from mingce.specs.estimators import GAE, TRUNCATIONS
from mingce.specs.kl import FULL, KL_NAMES
from mingce.user_files import names_file

_UNWHITENED = [estimator.name for estimator in ESTIMATORS.values() if not estimator.whitens]


def _set(default: Any, en: str, zh: str) -> Any:
    """A documented setting."""
    doc = {"en": en, "zh": zh}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: type(default)(default), metadata=doc)
    if isinstance(default, type):
        return field(default_factory=default, metadata=doc)
    return field(default=default, metadata=doc)


@dataclass
class DataConfig:
    """Where prompts come from, beyond the task's name."""

    lang: str = _set("zh", "language of the embedded tasks: zh or en", "内置任务的语言：zh 或 en")
    train: list[str] = _set([], "data files to train on, instead of a named task", "训练数据文件（代替具名任务）")
    held_out: list[str] = _set(
        [], "data files for validation; else a part is kept apart", "验证数据文件；没有则自动留出一部分"
    )
    max_prompt_tokens: int = _set(1024, "longest prompt, in tokens", "提示最长多少 token")
    overlong: str = _set(
        "filter",
        "longer ones: filter, cut (keep the end) or error",
        "更长的提示：filter 丢弃、cut 截取末尾、error 报错",
    )
    chat: bool = _set(
        True, "gsm8k and reasoning_gym: prompts as chat messages", "gsm8k 与 reasoning_gym：提示用对话消息"
    )
    size: int = _set(1000, "reasoning_gym: problems to generate", "reasoning_gym：生成多少题")
    held_out_size: int = _set(100, "reasoning_gym: held-out problems", "reasoning_gym：留出多少题")
    options: dict[str, Any] = _set({}, "reasoning_gym: the task's own options", "reasoning_gym：该任务自己的选项")


@dataclass
class LoraConfig:
    """Low-rank adapters."""

    rank: int = _set(0, "0 trains all weights; above 0 adapters of this rank", "0 训练全部权重；大于 0 为 LoRA 的秩")
    alpha: float = _set(32.0, "scale of the adapters", "LoRA 的缩放")
    target_modules: list[str] = _set([], "layers that get one; none: all linear ones", "加在哪些层；空为全部线性层")


@dataclass
class ModelConfig:
    """The policy, from which reference and critic start."""

    path: str = _set(
        "tiny", "tiny, smollm2, a Hugging Face directory or name", "tiny、smollm2，或 Hugging Face 目录/名字"
    )
    dtype: str = _set(
        "auto",
        "auto (float32 on a CPU), float32, bfloat16, float16",
        "auto（CPU 上为 float32）、float32、bfloat16、float16",
    )
    device: str = _set("auto", "auto (a GPU if there is one), cpu, cuda", "auto（有 GPU 用 GPU）、cpu、cuda")
    lora: LoraConfig = _set(LoraConfig, "low-rank adapters", "LoRA")


@dataclass
class SamplingConfig:
    """How responses are drawn."""

    max_new_tokens: int = _set(16, "longest response, in tokens", "回答最长多少 token")
    temperature: float = _set(
        1.0, "softmax temperature, in sampling and in training alike", "采样温度，训练端用同一温度"
    )
    top_k: int = _set(0, "only the k likeliest tokens; 0 for all", "只取最可能的 k 个；0 为全部")
    top_p: float = _set(1.0, "only the likeliest tokens that reach this probability", "只取累计概率到此为止的 token")
    min_p: float = _set(0.0, "only tokens at least this share of the likeliest", "只取不低于最大概率此比例的 token")
    stop: list[str] = _set(
        [], "more texts of one token that end a response", "除结束符外，还有哪些（单个 token 的）文本结束回答"
    )
    max_rows: int = _set(256, "rows decoded at a time", "同时解码多少行")


@dataclass
class RewardConfig:
    """What pays, beyond the task's own score."""

    function: str | None = _set(
        None,
        "file.py[:name] with compute_score(data_source, solution_str, ground_truth, extra_info)",
        "含 compute_score 的文件 file.py[:name]",
    )
    function_weight: float = _set(1.0, "its weight", "它的权重")
    model: str | None = _set(
        None, "directory of a reward model (sequence classifier, one output)", "奖励模型目录（单输出的序列分类器）"
    )
    model_weight: float = _set(1.0, "its weight", "它的权重")
    task_weight: float = _set(
        1.0, "weight of the task's own score when there are others", "有其他奖励时，任务得分的权重"
    )
    full_marks: float = _set(1.0, "data files: an answer is right from this score on", "数据文件：达到此分算答对")
    workers: int = _set(
        0,
        "processes that score; 0: one for reward.function, none for a task",
        "打分进程数；0：reward.function 用一个，任务自带的打分不用",
    )
    time_limit: float | None = _set(None, "seconds for one answer", "一条回答最多打分几秒")
    on_error: str = _set(
        "stop", "stop, or the score that a failing function counts as", "stop 停止；或打分出错时计的分数"
    )


@dataclass
class CreditConfig:
    """From rewards to advantages."""

    gamma: float = _set(1.0, "discount γ", "折扣 γ")
    lam: float = _set(0.95, "λ of GAE", "GAE 的 λ")
    n: int = _set(5, "steps of n_step", "n_step 的步数")
    k: int = _set(3, "tokens of last_k", "last_k 的 token 数")
    truncation: str = _set(
        "zero", "what follows a cut response: zero, bootstrap or mask", "被截断的回答之后：zero、bootstrap 或 mask"
    )
    whiten: str = _set(
        "auto",
        f"whiten advantages: always, never, auto (not for {', '.join(_UNWHITENED)})",
        f"白化优势：always、never、auto（{'、'.join(_UNWHITENED)} 不白化）",
    )


@dataclass
class KLConfig:
    """The price of drifting from the reference."""

    reward_coef: float = _set(0.01, "β: KL taken off each token's reward", "β：从每个 token 的奖励里扣的 KL")
    loss_coef: float = _set(0.0, "weight of the KL in the policy's loss", "策略损失里 KL 的权重")
    estimator: str = _set("k1", f"in the reward: {', '.join(KL_KINDS)}", f"奖励里用的估计：{'、'.join(KL_KINDS)}")
    loss_estimator: str = _set("k3+", "in the loss: k2, k3+, k1+ …", "损失里用的估计：k2、k3+、k1+ ……")
    clamp: float | None = _set(
        None, "limit of one token's KL (verl: 10 for k3)", "单个 token 的 KL 上限（verl 的 k3 为 10）"
    )
    adaptive: bool = _set(False, "let β follow the KL", "让 β 随 KL 调整")
    target: float = _set(0.1, "adaptive: the KL to keep", "自适应：目标 KL")
    horizon: int = _set(10000, "adaptive: rollouts over which to correct", "自适应：用多少条回答纠正")


@dataclass
class LearnerConfig:
    """How weights are updated."""

    lr: float = _set(3e-4, "learning rate", "学习率")
    epochs: int = _set(2, "passes over a step's rollouts", "每步数据过几遍")
    grad_clip: float = _set(1.0, "largest gradient norm", "梯度范数上限")
    weight_decay: float = _set(0.0, "AdamW's weight decay", "AdamW 权重衰减")
    beta1: float = _set(0.9, "AdamW's first moment", "AdamW 一阶矩系数")
    beta2: float = _set(0.999, "AdamW's second moment", "AdamW 二阶矩系数")
    warmup_steps: int = _set(0, "steps over which the learning rate rises", "学习率预热几步")
    schedule: str = _set("constant", "after that: constant, linear or cosine", "之后的学习率：constant、linear、cosine")


@dataclass
class ActorConfig(LearnerConfig):
    """The policy's updates."""

    loss: str = _set(
        "ppo",
        "; ".join(f"{loss.name}: {loss.en}" for loss in POLICY_LOSSES.values()) + "; or file.py:name of your own",
        "；".join(f"{loss.name}：{loss.zh}" for loss in POLICY_LOSSES.values()) + "；或自己写的 file.py:name",
    )
    clip_low: float = _set(0.2, "ratios count down to 1 − this", "比值最低到 1 − 此值")
    clip_high: float = _set(0.2, "ratios count up to 1 + this", "比值最高到 1 + 此值")
    dual_clip: float | None = _set(3.0, "cap on a bad token's ratio; null: none", "坏 token 比值的封顶；null 不封")
    loss_agg_mode: str = _set(
        "token-mean",
        f"how token losses are averaged: {', '.join(AGGREGATIONS)}",
        f"损失聚合方式：{'、'.join(AGGREGATIONS)}",
    )
    entropy_coef: float = _set(0.0, "weight of the entropy bonus", "熵奖励的权重")
    stop_kl: float | None = _set(
        None,
        "end a step's updates once the policy moved this far (mean KL old‖new)",
        "策略走出这么远（KL）就结束本步更新",
    )


@dataclass
class CriticConfig(LearnerConfig):
    """The critic's updates."""

    lr: float = _set(1e-3, "learning rate", "学习率")
    path: str | None = _set(None, "its own model; else the policy's weights", "自己的模型；否则取策略的权重")
    value_clip: float | None = _set(
        0.5, "how far a value may move in one step; null: any", "价值一步最多改多少；null 不限"
    )
    minibatch_rollouts: int = _set(64, "rollouts an optimizer step of the critic", "critic 每次更新用多少条回答")
    warmup: int = _set(0, "first steps in which only the critic learns", "最初几步只训练 critic")


@dataclass
class ValidationConfig:
    """Held-out prompts."""

    every: int = _set(10, "steps between validations; 0: only before and after", "隔几步验证；0 为只在前后")
    examples: int = _set(200, "held-out prompts, the same each time", "用多少留出提示（每次相同）")


@dataclass
class AuditConfig:
    """Independent code recomputes the ledger while training."""

    every: int = _set(
        10,
        "the first step's ledger and every N-th are audited; 0: none",
        "审计第一步的账本，以及之后每隔几步审计一次；0 不审计",
    )
    stop: bool = _set(
        True,
        "a finding of severity bug stops the run, once its step is saved",
        "审计发现 bug 时，存档该步后停止训练",
    )


@dataclass
class KeepConfig:
    """What is written while training."""

    ledger_every: int = _set(1, "steps between ledgers; 0: none", "隔几步写账本；0 不写")
    checkpoint_every: int = _set(
        10, "steps between checkpoints; the last step always has one", "隔几步存档；最后一步必存"
    )
    last: int = _set(2, "newest checkpoints kept", "保留最新几个")
    best: int = _set(1, "best checkpoints kept, by sampled accuracy", "保留最好几个（按采样准确率）")
    optimizer: int = _set(
        2,
        "newest checkpoints with the optimizer's moments, from which a resume is exact; older ones have weights only",
        "最新几个存档带优化器状态（可逐位续训）；更早的只留权重",
    )
    loggers: list[str] = _set(
        [], "beside TensorBoard: wandb, mlflow, trackio", "除 TensorBoard 外：wandb、mlflow、trackio"
    )


LARGE = 1_000_000_000
"""Parameters from which on ray.reshard=auto gives gathered weights back."""


@dataclass
class RayConfig:
    """engine=ray: the roles as groups of processes, models sharded over each group (docs/en/how-to/on-a-cluster.md)."""

    address: str = _set(
        "local",
        "local (a cluster of its own on this machine), auto (the one that runs here) or host:port",
        "local（本机自起一个）、auto（本机已在运行的）或 host:port",
    )
    ranks: int = _set(
        2,
        "processes of the actor and of the roles without processes of their own",
        "actor 的进程数；没有自己进程的角色与它同住",
    )
    critic_ranks: int = _set(
        0, "processes of the critic's own; 0: in the actor's", "critic 自己的进程数；0 与 actor 同进程"
    )
    reference_ranks: int = _set(
        0, "processes of the reference's own; 0: in the actor's", "参考模型自己的进程数；0 与 actor 同进程"
    )
    reward_ranks: int = _set(0, "processes that only score; 0: in the actor's", "专门打分的进程数；0 与 actor 同进程")
    cpus: int = _set(
        1, "cores a process reserves; its threads where threads=0", "每个进程占用的核数；threads=0 时也是线程数"
    )
    reshard: str = _set(
        "auto",
        "give gathered weights back after every use (less memory, more traffic): always, never, auto (from 1 B parameters on)",
        "用完即释放拼齐的权重（省内存，多通信）：always、never、auto（10 亿参数起释放）",
    )
    mixed_precision: str = _set(
        "none",
        "none, bfloat16 or float16: compute in it, keep and sum up gradients in float32",
        "none、bfloat16 或 float16：以此计算，权重与梯度求和用 float32",
    )
    activation_checkpointing: bool = _set(
        False, "compute activations again in the backward pass instead of keeping them", "反向时重算激活而不保存"
    )
    cpu_offload: bool = _set(
        False, "keep shards and moments in the host's memory (GPUs)", "分片与优化器状态放在主机内存（GPU）"
    )
    timeout: float = _set(
        600.0, "seconds after which a process that does not answer counts as hung", "超过多少秒不回应算挂起"
    )
    max_restarts: int = _set(
        3, "how often lost processes are replaced before the run gives up", "进程丢失后最多重启几次"
    )

    def reshards(self, parameters: int) -> bool:
        """Whether a model of so many parameters gives gathered weights back after every use."""
        return self.reshard == "always" or (self.reshard == "auto" and parameters >= LARGE)


@dataclass
class Config:
    """Every setting of a run."""

    task: str = _set(
        "arithmetic", "arithmetic, counting, gsm8k:PATH, reasoning_gym:NAME, or a data file", "任务名或数据文件"
    )
    estimator: str = _set(
        GAE,
        f"how advantages are estimated: {', '.join(ESTIMATORS)}, or file.py:name of your own",
        f"优势估计器：{'、'.join(ESTIMATORS)}，或自己写的 file.py:name",
    )
    steps: int = _set(40, "training steps", "训练步数")
    prompts_per_step: int = _set(64, "different prompts a step", "每步多少个不同的提示")
    samples_per_prompt: int = _set(4, "responses drawn for each", "每个提示采样多少条")
    minibatch_rollouts: int = _set(128, "rollouts an optimizer step", "每次优化器更新用多少条回答")
    micro_batch_tokens: int = _set(
        2048,
        "tokens a forward pass, padding counted where it is computed; changes speed and memory, not results",
        "一次前向多少 token（计算填充时连填充一起算）；只影响速度与内存",
    )
    seed: int = _set(0, "of data order, sampling and shuffling", "数据顺序、采样与打乱的种子")
    threads: int = _set(
        0,
        "CPU threads; 0: one for a model under 5 M parameters, else all cores (the same number repeats bit for bit)",
        "CPU 线程数；0 为自动：5 M 参数以下用一个，否则用全部核（同样线程数才逐位可复现）",
    )
    name: str | None = _set(None, "the run's name; made of the time if left out", "运行的名字；默认按时间生成")
    root: str = _set("runs", "directory of runs", "运行目录的上级")
    engine: str = _set("local", "local (this process) or ray (a cluster)", "local（本进程）或 ray（集群）")
    ray: RayConfig = _set(RayConfig, "engine=ray", "engine=ray")
    data: DataConfig = _set(DataConfig, "prompts", "提示")
    model: ModelConfig = _set(ModelConfig, "the policy", "策略模型")
    sampling: SamplingConfig = _set(SamplingConfig, "drawing responses", "采样")
    reward: RewardConfig = _set(RewardConfig, "what pays", "奖励")
    credit: CreditConfig = _set(CreditConfig, "from rewards to advantages", "信用分配")
    kl: KLConfig = _set(KLConfig, "the price of drifting", "KL")
    actor: ActorConfig = _set(ActorConfig, "the policy's updates", "策略更新")
    critic: CriticConfig = _set(CriticConfig, "the critic's updates", "critic 更新")
    validation: ValidationConfig = _set(ValidationConfig, "held-out prompts", "验证")
    audit: AuditConfig = _set(AuditConfig, "audit of the ledger", "账本审计")
    keep: KeepConfig = _set(KeepConfig, "what is written", "写盘")


def settings(section: Any = Config, prefix: str = "") -> Iterator[tuple[str, Field[Any], Any]]:
    """(dotted key, field, default) of every setting, in order."""
    example = section()
    for setting in fields(section):
        default = getattr(example, setting.name)
        if is_dataclass(default):
            yield from settings(type(default), f"{prefix}{setting.name}.")
        else:
            yield prefix + setting.name, setting, default


def read_config(recipe: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Defaults, then the recipe, then the overrides; checked as a whole."""
    config = merged_config(recipe, overrides)
    check_config(config)
    return config


def merged_config(recipe: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The same, its names and types checked and nothing more, which needs no torch."""
    from omegaconf import OmegaConf

    layers = [OmegaConf.structured(Config)]
    if recipe is not None:
        layers.append(_read_recipe(Path(recipe)))
    layers += [_override(override) for override in overrides]
    for layer in layers[1:]:
        _known_keys(OmegaConf.to_container(layer))
    return _merged(layers)


def _merged(layers: Sequence[Any]) -> Config:
    """The settings of all layers, a later one over an earlier one; a wrong type is an error."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        config = OmegaConf.to_object(OmegaConf.merge(*layers))
    except (OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
        key = str(getattr(error, "full_key", "") or "a setting")
        raise SettingError(f"{key}: {_first_line(error)}.") from error
    assert isinstance(config, Config)
    return config


def _override(override: str) -> Any:
    """`key=value` as a layer."""
    from omegaconf import OmegaConf

    key, equals, value = override.partition("=")
    if not equals or not key:
        raise SettingError(f"'{override}' is not a setting; write key=value, such as lam=0.9.")
    key = _long(key)
    try:
        layer = OmegaConf.from_dotlist([f"{key}={value}"])
        OmegaConf.to_container(layer)
    except Exception as error:  # whatever the YAML reader and OmegaConf say
        raise SettingError(f"{key} cannot be read from '{override}' ({_first_line(error)}).") from error
    return layer


def _first_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return text if len(text) <= 200 else f"{text[:199]}…"


def config_of(values: dict[str, Any]) -> Config:
    """A configuration from the values a run stored."""
    from omegaconf import OmegaConf

    values = _renamed(values)
    _known_keys(values)
    return _merged([OmegaConf.structured(Config), values])


def as_values(config: Config) -> dict[str, Any]:
    """The configuration as plain values, for config.yaml."""
    return asdict(config)


def _read_recipe(path: Path) -> Any:
    from omegaconf import OmegaConf

    try:
        text = read_regular(path)
        if isinstance(parse_yaml(text), dict):
            return OmegaConf.create(_renamed(OmegaConf.to_container(OmegaConf.create(text.decode()))))
    except (OSError, UnicodeDecodeError):
        raise SettingError(f"the recipe {path} cannot be read; give the path of a YAML file.") from None
    except Exception as error:  # whatever the YAML reader and OmegaConf say
        raise SettingError(f"the recipe {path} is not valid YAML: {_first_line(error)}.") from error
    raise SettingError(f"the recipe {path} must be a mapping of settings.")


def _renamed(values: Any) -> Any:
    """The values with `data.lang` where a run or a recipe made before has `lang`."""
    if "lang" not in values or not isinstance(values.get("data", {}), dict):
        return values
    rest = {name: value for name, value in values.items() if name != "lang"}
    return rest | {"data": {"lang": values["lang"]} | rest.get("data", {})}


def _long(key: str) -> str:
    """`lam` for `credit.lam`, where the last part of the key is enough to know it."""
    keys = [known for known, _, _ in settings()]
    if key in keys or any(known.startswith(key + ".") for known in keys):
        return key
    short = [known for known in keys if known.rpartition(".")[2] == key]
    if len(short) == 1:
        return short[0]
    if len(short) > 1:
        raise SettingError(f"'{key}' may mean {' or '.join(short)}; write the whole key.")
    return key


def _known_keys(values: Any, prefix: str = "") -> None:
    """Every key of a layer is a setting, or the options of a task."""
    keys = [known for known, _, _ in settings()]
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in keys and any(known.startswith(key + ".") for known in keys):
            _known_keys(value, key + ".")
        elif key not in keys:
            known = [*keys, *(known.rpartition(".")[2] for known in keys)]
            raise UnknownNameError("setting", key, known, where=", which `mingce train --dry-run` prints")


def check_config(config: Config) -> None:
    """Settings that are out of range, or contradict each other, are errors before anything is made."""
    from mingce.bounds import check_bounds

    check_bounds(config, {key: _value(config, key) for key, _, _ in settings()})
    choices = {
        "data.lang": (config.data.lang, LANGS),
        "engine": (config.engine, ("local", "ray")),
        "ray.reshard": (config.ray.reshard, ("auto", "always", "never")),
        "ray.mixed_precision": (config.ray.mixed_precision, ("none", "bfloat16", "float16")),
        "data.overlong": (config.data.overlong, ("filter", "cut", "error")),
        "credit.truncation": (config.credit.truncation, TRUNCATIONS),
        "credit.whiten": (config.credit.whiten, ("auto", "always", "never")),
        "kl.estimator": (config.kl.estimator.removesuffix("+"), KL_NAMES),
        "kl.loss_estimator": (config.kl.loss_estimator.removesuffix("+"), KL_NAMES),
        "actor.loss_agg_mode": (config.actor.loss_agg_mode, AGGREGATIONS),
        "actor.schedule": (config.actor.schedule, ("constant", "linear", "cosine")),
        "critic.schedule": (config.critic.schedule, ("constant", "linear", "cosine")),
    }
    for key, value, table in (
        ("estimator", config.estimator, ESTIMATORS),
        ("actor.loss", config.actor.loss, POLICY_LOSSES),
    ):
        if not names_file(value):
            choices[key] = value, tuple(table)
    for key, (value, known) in choices.items():
        if value not in known:
            raise UnknownNameError(key, value, known)
    at_least_one = (
        "prompts_per_step samples_per_prompt minibatch_rollouts critic.minibatch_rollouts micro_batch_tokens data.max_prompt_tokens "
        "sampling.max_new_tokens sampling.max_rows actor.epochs critic.epochs keep.checkpoint_every keep.last keep.optimizer credit.n credit.k ray.ranks "
        "ray.cpus"
    ).split()
    not_negative = (
        "steps threads model.lora.rank sampling.top_k kl.reward_coef kl.loss_coef actor.lr critic.lr actor.grad_clip critic.grad_clip "
        "actor.warmup_steps critic.warmup_steps critic.warmup validation.every validation.examples audit.every keep.ledger_every "
        "keep.best actor.clip_low actor.clip_high actor.entropy_coef reward.workers ray.critic_ranks "
        "ray.reference_ranks ray.reward_ranks ray.max_restarts"
    ).split()
    for keys, least in ((at_least_one, 1), (not_negative, 0)):
        for key in keys:
            if not _value(config, key) >= least:
                raise SettingError(f"{key} must be at least {least}, but is {_value(config, key)}.")
    for key in ("credit.gamma", "credit.lam"):
        if not 0 <= _value(config, key) <= 1:
            raise SettingError(f"{key} must lie between 0 and 1, but is {_value(config, key)}.")
    if config.ray.timeout <= 0:
        raise SettingError(f"ray.timeout must be above 0 seconds, but is {config.ray.timeout}.")
    if config.sampling.temperature <= 0:
        raise SettingError("sampling.temperature must be above 0 for training: a greedy policy does not explore.")
    if FULL in (config.kl.estimator, config.kl.loss_estimator):
        raise SettingError(
            f"kl.estimator={FULL} needs every logit of both models and is not offered in training; use one of "
            f"{', '.join(KL_KINDS)}."
        )
    in_loss = config.kl.loss_estimator
    if config.kl.loss_coef > 0 and not (in_loss.endswith("+") or find_kl(in_loss).as_loss):
        raise SettingError(
            f"kl.loss_estimator={in_loss} as a loss does not depend on the reference; use {in_loss}+ or one of "
            f"{', '.join(kind.name for kind in KL_KINDS.values() if kind.as_loss)}."
        )
    check_specs(config)


def check_specs(config: Config) -> None:
    """What estimator and policy loss need of the other settings; of one in a file, once that is loaded."""
    estimator, loss = ESTIMATORS.get(config.estimator), POLICY_LOSSES.get(config.actor.loss)
    for spec, section, prefix in ((estimator, config.credit, "credit"), (loss, config.actor, "actor")):
        for name in () if spec is None else spec.settings:
            if spec is not None and name not in vars(section):
                raise UnknownNameError(
                    f"setting of {spec.name}", f"{prefix}.{name}", [f"{prefix}.{one}" for one in vars(section)]
                )
    if estimator is None:
        return
    if estimator.grouped and config.samples_per_prompt < 2:
        raise SettingError(
            f"estimator={config.estimator} compares the samples of a prompt; set samples_per_prompt to 2 or more."
        )
    if config.credit.truncation == "bootstrap" and not estimator.needs_critic:
        raise SettingError(
            f"credit.truncation=bootstrap needs a critic, which estimator={config.estimator} has not; use zero or mask."
        )


def _value(config: Config, key: str) -> Any:
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found
