"""The words of the display, in Chinese and in English, and how its figures are written."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

MUTED = "#8b93a1"
"""A grey that can be read on black and on white, for what matters less."""

STAGES = (
    "generate",
    "score",
    "log_probs",
    "values",
    "credit",
    "update_critic",
    "update_actor",
    "audit",
    "validate",
    "ledger",
    "save",
)

PHRASES: dict[str, dict[str, str]] = {
    "zh": {
        "generate": "生成",
        "score": "打分",
        "log_probs": "对数概率",
        "values": "价值",
        "credit": "信用",
        "update_critic": "更新 critic",
        "update_actor": "更新 actor",
        "audit": "审计",
        "validate": "验证",
        "ledger": "账本",
        "save": "存档",
        "other": "其他",
        "short_update_critic": "critic",
        "short_update_actor": "actor",
        "step": "第 {step}/{steps} 步",
        "elapsed": "已用 {time}",
        "left": "剩余 {time}",
        "pace": "{seconds} 秒/步",
        "speed": "{tokens} token/秒",
        "curve_score": "得分",
        "curve_kl": "KL",
        "curve_entropy": "熵",
        "curve_length": "长度",
        "curve_explained": "解释方差",
        "curve_accuracy": "准确率",
        "greedy": "贪心",
        "sampled": "采样",
        "split": "每步时间",
        "answer": "第 {step} 步的一条回答",
        "answer_score": "得分 {score}",
        "advantage": "优势",
        "warning": "警告：",
        "validation": "第 {step} 步验证",
        "before": "训练前",
        "after": "训练后",
        "done": "训练完成：{steps} 步，用时 {time}。",
        "stopped": "{reason}：停在第 {steps} 步，用时 {time}；进度已存档。",
        "accuracy": "留出题准确率",
        "run": "运行目录",
        "next": "接下来",
    },
    "en": {
        "generate": "generate",
        "score": "score",
        "log_probs": "log-probs",
        "values": "values",
        "credit": "credit",
        "update_critic": "critic update",
        "update_actor": "actor update",
        "audit": "audit",
        "validate": "validate",
        "ledger": "ledger",
        "save": "save",
        "other": "other",
        "short_update_critic": "critic",
        "short_update_actor": "actor",
        "step": "step {step}/{steps}",
        "elapsed": "{time} elapsed",
        "left": "{time} left",
        "pace": "{seconds} s/step",
        "speed": "{tokens} tokens/s",
        "curve_score": "score",
        "curve_kl": "KL",
        "curve_entropy": "entropy",
        "curve_length": "length",
        "curve_explained": "explained var.",
        "curve_accuracy": "accuracy",
        "greedy": "greedy",
        "sampled": "sampled",
        "split": "a step's time",
        "answer": "one answer of step {step}",
        "answer_score": "score {score}",
        "advantage": "advantage",
        "warning": "warning: ",
        "validation": "validation at step {step}",
        "before": "before",
        "after": "after",
        "done": "Done: {steps} steps in {time}.",
        "stopped": "{reason}: stopped after step {steps}, {time}; progress is saved.",
        "accuracy": "held-out accuracy",
        "run": "run",
        "next": "next",
    },
}


def duration(seconds: float) -> str:
    """`0:34`, `12:05` or `3:02:05`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def padded(text: str, width: int, right: bool = False) -> str:
    """`text` in exactly `width` cells, where a Chinese character takes two; cut if it is too long."""
    if right and cell_len(text) < width:
        return " " * (width - cell_len(text)) + text
    return set_cell_size(text, width)
