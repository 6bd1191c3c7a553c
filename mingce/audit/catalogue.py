"""The classes of token-level bugs that happened in public trainers, 1 to 48, by name.

Compiled from public issues and pull requests; a fault of the audit names the classes it can stand for. `decidable` says
what one dump gives away: "yes", "partly" (with columns most dumps lack, or several steps), "no" (only with the models
or the texts at hand).
"""

from __future__ import annotations

from typing import NamedTuple


class BugClass(NamedTuple):
    """One class: its name in 中文 and English, what a dump can show of it, one public report."""

    zh: str
    en: str
    decidable: str  # "yes", "partly" or "no"
    link: str


def _github(place: str) -> str:
    return f"https://github.com/{place}"


CLASSES: dict[int, BugClass] = {
    number: BugClass(zh, en, decidable, _github(place))
    for number, (zh, en, decidable, place) in enumerate(
        (
            ("提示分组错乱", "prompt groups mis-formed", "yes", "THUDM/slime/issues/1414"),
            ("重算对数概率时漏了温度或采样参数", "temperature missing when log-probs are recomputed", "yes", "huggingface/trl/issues/4159"),
            ("工具/观察 token 混进 KL、回报、GAE 或损失", "tool tokens enter KL, returns, GAE or loss", "yes", "THUDM/slime/issues/1370"),
            ("token 平均损失按微批各自平均", "token-mean loss averaged per micro-batch", "partly", "verl-project/verl/issues/5625"),
            ("采样引擎与训练端的对数概率不一致", "rollout engine's log-probs differ from the trainer's", "yes", "verl-project/verl/pull/2953"),
            ("采样引擎里的权重过期或损坏", "stale or corrupt weights in the rollout engine", "partly", "huggingface/trl/issues/5312"),
            ("pad_id 等于 eos_id，真正的 EOS 被掩掉", "real EOS masked because pad_id = eos_id", "yes", "huggingface/trl/pull/6357"),
            ("没有 EOS 时填充被当成回答", "padding counted as response when EOS is absent", "yes", "verl-project/verl/issues/3805"),
            ("终点得分放错下标", "terminal score on the wrong index", "yes", "huggingface/trl/issues/3750"),
            ("奖励落在被掩的位置", "reward on a masked position", "yes", "radixark/miles/pull/1827"),
            ("空行把奖励写到下标 −1", "empty row writes its reward at index −1", "yes", "verl-project/verl/issues/6476"),
            ("重新分词后 token 漂移", "retokenisation drift", "partly", "huggingface/trl/issues/5224"),
            ("左填充但没有 position_ids 或注意力掩码", "left padding without position_ids or attention mask", "partly", "OpenRLHF/OpenRLHF/issues/217"),
            ("截断采样（top-p/k、min-p）的重新归一化", "truncated sampling (top-p/k, min-p) renormalised", "yes", "huggingface/trl/issues/6789"),
            ("填充或被掩位置的 KL 漏进回报", "KL on masked positions leaks into returns", "yes", "THUDM/slime/pull/1372"),
            ("填充处的价值给最后一个真实 token 做了自举", "padded values bootstrap the last real token", "yes", "alibaba/ROLL/pull/447"),
            ("第一个小批上比值不是 1", "ratio is not 1 on the first mini-batch", "partly", "CarperAI/trlx/issues/107"),
            ("对数概率错开一个 token", "log-probs shifted by one token", "yes", "PrimeIntellect-ai/prime-rl/pull/1525"),
            ("价值或 critic 掩码错位、切片错误", "values or critic mask shifted or wrongly sliced", "partly", "verl-project/verl/issues/1758"),
            ("裁剪失效：比值的分母不是行为策略", "idle clip: the ratio's denominator is not the behaviour policy", "yes", "radixark/miles/pull/1829"),
            ("logits / log-softmax 精度过低", "low-precision logits or log-softmax", "yes", "OpenRLHF/OpenRLHF/pull/634"),
            ("参考策略不对", "wrong reference policy", "partly", "huggingface/trl/pull/6591"),
            ("KL 符号反了", "KL sign flipped", "yes", "qiancheng0/ToolRL/issues/52"),
            ("KL 估计量不对，或用在梯度不对的地方", "wrong KL estimator, or one whose gradient is wrong there", "partly", "NVIDIA-NeMo/RL/pull/2506"),
            ("KL 算了两次或一次没算", "KL counted twice or not at all", "partly", "verl-project/verl/issues/211"),
            ("损失分母没用分子所用的掩码", "loss denominator ignores a mask the numerator uses", "partly", "huggingface/trl/issues/6369"),
            ("掩码没有逐元素相乘，或传错了张量", "mask not applied elementwise, or another tensor passed as mask", "partly", "verl-project/verl/issues/2506"),
            ("填充占位值（+1、0、−1）被当成对数概率", "pad sentinels (+1, 0, −1) treated as log-probs", "yes", "huggingface/trl/issues/2496"),
            ("白化统计用错掩码", "whitening statistics use the wrong mask", "yes", "verl-project/verl/pull/1527"),
            ("白化统计范围不对（单卡、微批、单行）", "whitening statistics of the wrong scope", "yes", "thomfoster/minRLHF/issues/5"),
            ("白化退化：一个 token、一个样本或 NaN", "degenerate whitening: one token, one sample, NaN", "yes", "huggingface/trl/pull/5773"),
            ("白化后又把均值加回去", "mean re-added after whitening", "yes", "meta-pytorch/torchtune/pull/1005"),
            ("优势 = 奖励 − 价值，或回报 ≠ 优势 + 价值", "advantage = reward − value, or returns are not advantage + value", "yes", "hpcaitech/ColossalAI/issues/4491"),
            ("被截断的回答当成正常结束（没有自举）", "truncated response treated as terminal (no bootstrap)", "yes", "huggingface/trl/pull/1536"),
            ("奖励模型读到的 token 不是策略写的", "reward model reads other tokens than the policy wrote", "no", "pytorch/rl/pull/3887"),
            ("EOS 被强加、被剪掉，或是另一个停止符", "EOS forced in, trimmed away, or another stop id", "partly", "OpenRLHF/OpenRLHF/issues/238"),
            ("过滤或去重后各行错位", "rows desynchronised after filtering", "yes", "allenai/open-instruct/pull/1794"),
            ("掩码后面有 NaN/−inf（NaN×0 = NaN）", "NaN or −inf behind the mask (NaN·0 = NaN)", "yes", "verl-project/verl/pull/2377"),
            ("重要性权重用错了一对策略", "importance weight built from the wrong pair", "partly", "THUDM/slime/pull/179"),
            ("序列/上下文并行或打包后顺序错乱", "sequence-parallel or packing reorder", "yes", "modelscope/ms-swift/pull/10071"),
            ("打分时 dropout 没关", "dropout on during scoring", "partly", "huggingface/trl/pull/3234"),
            ("重复的 BOS 或模板不一致", "double BOS or another prompt template", "yes", "vllm-project/vllm/pull/55288"),
            ("自适应 KL 控制器用错 KL 或步数", "adaptive-KL controller fed the wrong KL or count", "partly", "CarperAI/trlx/pull/361"),
            ("常数归一化的损失（Dr. GRPO）用错常数", "constant-normaliser loss (Dr. GRPO) with the wrong constant", "partly", "verl-project/verl/issues/3741"),
            ("价值裁剪不起作用或裁错对象", "value clipping has no effect or clips the wrong thing", "partly", "RLinf/RLinf/issues/1529"),
            ("给错误的文本或长度打分", "reward scored on the wrong text or length", "no", "verl-project/verl/pull/6392"),
            ("诊断指标把填充也平均进去", "diagnostics averaged over pads", "partly", "huggingface/trl/issues/6803"),
            ("续训后数据重复，或一批数据反复出现", "data repeated after resume, or a stuck batch", "no", "PrimeIntellect-ai/prime-rl/pull/3164"),
        ),
        start=1,
    )
}  # fmt: skip
