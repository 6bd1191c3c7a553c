"""Writes the pages of docs/ that are generated from code; with --check only says whether they are current.

python scripts/make_docs.py            write them
python scripts/make_docs.py --check    exit with 1 if one is stale
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mingce.audit.audit import checks
from mingce.audit.catalogue import CLASSES
from mingce.audit.finding import FAULTS, SEVERITIES, Fault
from mingce.audit.wording import unfilled
from mingce.columns import COLUMNS, SETTINGS, Column
from mingce.config import describe, settings
from mingce.metrics import MEASURED, METRICS, measured_meaning
from mingce.plan.page import refreshed

ROOT = Path(__file__).resolve().parent.parent


def columns_page() -> str:
    """docs/columns.md, from the column table."""
    lines = [
        "# The columns · 列",
        "",
        "Generated from `mingce/columns.py` and `mingce/texts/columns.*.md` by `make docs`; do not edit.",
        "由 `mingce/columns.py` 与 `mingce/texts/columns.*.md` 生成（`make docs`），请勿手改。",
        "",
        "Counting starts at 0. State s_t is the prompt and the tokens before token t; action a_t is token t. *State*-",
        "aligned columns are about s_t, before the token; *action*-aligned ones about choosing it. t+1 means the next",
        "**chosen** token.",
        "",
        "下标从 0 开始。状态 s_t 是提示加上第 t 个 token 之前的所有 token，动作 a_t 就是第 t 个 token。",
        "“state”对齐的列说的是 s_t（选之前），“action”对齐的列说的是选这个 token 本身。t+1 指下一个**被选的** token。",
        "",
        "| column | symbol | aligned | type | formula | from |",
        "|---|---|---|---|---|---|",
        *(
            f"| [`{c.name}`](#{c.name}) | {_cell(c.symbol)} | {c.alignment} | {c.dtype} "
            f"| {_cell(c.formula)} | `{c.source}` |"
            for c in COLUMNS.values()
        ),
        "",
        "| setting | symbol | meaning | 含义 |",
        "|---|---|---|---|",
        *(f"| `{s.name}` | {_cell(s.symbol)} | {s.en} | {s.zh} |" for s in SETTINGS.values()),
        "",
    ]
    for known in COLUMNS.values():
        lines += _section(known)
    return "\n".join(lines)


def _section(known: Column) -> list[str]:
    facts = [f"`{known.formula}`"]
    if known.inputs:
        facts.append("computed from " + ", ".join(f"[`{name}`](#{name})" for name in known.inputs))
    if known.optional:
        facts.append("and, where there, " + ", ".join(f"[`{name}`](#{name})" for name in known.optional))
    if known.aliases:
        facts.append("elsewhere " + ", ".join(f"`{alias}`" for alias in known.aliases))
    return [
        f"## {known.name}",
        "",
        " · ".join(facts),
        "",
        f"{known.en} {known.long_en}",
        "",
        f"{known.zh}{known.long_zh}",
        "",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def config_page() -> str:
    """docs/config.md, from the dataclasses."""
    lines = [
        "# Settings · 配置",
        "",
        "Generated from `mingce/config.py` by `make docs`; do not edit. 由 `mingce/config.py` 生成（`make docs`），请勿手改。",
        "",
        "`mingce train [recipe.yaml] key=value …`: defaults, then the recipe, then the command line. The last part of a key is",
        "enough where it is unique: `lam=0.9` is `credit.lam=0.9`. `mingce train --dry-run …` prints what a run would be.",
        "",
        "依次为默认值、recipe 文件、命令行。键的最后一段若唯一即可省写：`lam=0.9` 就是 `credit.lam=0.9`。",
        "",
        "| key | default | meaning | 含义 |",
        "|---|---|---|---|",
    ]
    for key, _, default in settings():
        shown = "" if default is None else json.dumps(default, ensure_ascii=False)
        lines.append(f"| `{key}` | `{shown or 'null'}` | {_cell(describe(key, 'en'))} | {_cell(describe(key, 'zh'))} |")
    return "\n".join([*lines, ""])


def metrics_page() -> str:
    """docs/metrics.md, from the table of metrics."""
    lines = [
        "# Metrics · 指标",
        "",
        "Generated from `mingce/metrics.py` by `make docs`; do not edit. 由 `mingce/metrics.py` 生成（`make docs`），请勿手改。",
        "",
        "Every one is a function of ledger columns, so it can be recomputed from the ledger of its step. Means over tokens in",
        "the losses leave out what the mask leaves out, and nothing is averaged per micro-batch.",
        "",
        "每个指标都是账本列的函数，可由该步账本重新算出。",
        "",
        "| metric | columns | reduction | meaning | 含义 |",
        "|---|---|---|---|---|",
        *(
            f"| `{m.name}` | {', '.join(f'[`{c}`](columns.md#{c})' for c in m.columns)} | {m.reduction} | {m.en} | {m.zh} |"
            for m in METRICS
        ),
        "",
        "Measured, not computed from columns · 由时钟或优化器测得：",
        "",
        "| metric | meaning | 含义 |",
        "|---|---|---|",
        *(f"| `{name}` | {measured_meaning(name, 'en')} | {measured_meaning(name, 'zh')} |" for name in MEASURED),
        "",
    ]
    return "\n".join(lines)


AUDIT_HEAD = """\
# The audit · 审计

Generated from `mingce/audit/` by `make docs`; do not edit. 由 `mingce/audit/` 生成（`make docs`），请勿手改。

`mingce audit FILE_OR_DIR…` opens the token-level tensors that a trainer wrote, recomputes every identity in float64 with
code that shares nothing with that trainer, and says which bug is in them, on which tokens, with the numbers. Exit code:
0 clean, 1 a finding of severity bug, 2 could not run.

`mingce audit` 打开训练框架写下的 token 级张量，用与该框架毫无共用代码的 float64 实现重算每个等式，指出有什么 bug、在哪些 token 上、数值各是多少。
退出码：0 干净，1 有 bug，2 没能运行。

## Making a dump · 怎样得到数据

A dump is any `.npz`, `.safetensors`, `.parquet`, `.jsonl` or `.pt` file (or a directory of them, one a rank or a step) with
columns [rows, response tokens]. [examples/dump_from_verl.py](../examples/dump_from_verl.py) and
[examples/dump_from_trl.py](../examples/dump_from_trl.py) are a few lines to paste into a trainer. Columns of other names:
`--mapping FILE`. Pickles are read without executing them, and every file by a process of its own whose memory and time
grow with the file's size (512 MB and 6 CPU seconds at least); `MINGCE_DUMP_LIMIT=4` allows four times as much where
a sound dump needs it. What helps most, beside masks, scores, rewards, values,
advantages and returns:

把下面几行粘进训练代码即可：[examples/dump_from_verl.py](../examples/dump_from_verl.py)、[examples/dump_from_trl.py](../examples/dump_from_trl.py)。
列名不同时用 `--mapping FILE`。读 pickle 时不执行其中任何代码；每个文件由单独的进程读取，内存和时间按文件大小设限（至少 512 MB、6 秒 CPU），
正常的文件不够用时设 `MINGCE_DUMP_LIMIT=4` 放宽到四倍。除掩码、得分、奖励、价值、优势、回报外，最有用的是：

- `token_ids`, `attention_mask`, `prompt_ids`, `uid`, `finish_reason`; `eos_id`, `pad_id`, `bos_id` as settings
- `rollout_log_probs`, `old_log_probs`, `ref_log_probs`, `entropy`: temperature, truncation and alignment show in them
- values and log-probs **as they were before masking**: half of the evidence stands behind the mask · 掩码**之前**的原值，一半证据在掩码后面
- float32: in bfloat16 k2 and k3, or Bessel's correction, cannot be told apart · 用 float32 存

Our own runs are dumps already: `mingce audit runs/NAME`. While training, `audit.every=N` audits the ledger of the first step
(made by the untrained weights: what is broken from the start stops the run there) and of every N-th; findings go to
`runs/NAME/audit.jsonl`, and a bug stops the run after that step has been saved, unless `audit.stop=false`.

自己的运行目录可直接审计：`mingce audit runs/NAME`。训练中 `audit.every=N` 审计第一步（权重还没更新，一开始就有的错在这里停下）和之后每 N 步的账本；
结果写入 `audit.jsonl`，发现 bug 则存档该步后停止，除非 `audit.stop=false`。

## Reading a report · 怎样读报告

The first line is the verdict. Each finding then has the formula that fails, the class of the catalogue below, the share of
the rows that could show it and do, the first tokens with the number expected and the one found, the usual cause, what to
change, and a public report of the same bug. A check judges a column from the columns it was made of, so one bug gives one
finding, at the first column that is wrong, not at all those after it.

第一行是结论。每条发现给出：不成立的公式、下表中的类别、受影响的行的比例、最先出错的几个 token（应为/实为）、常见原因、改法、同类 bug 的公开报告。
每列都相对于它的输入来判断，所以一个 bug 只报一次，报在最先出错的那一列。

- **bug**: an identity of the algorithm is broken, or a signal stands where it must not · 算法的等式不成立，或信号出现在不该出现的地方
- **suspicious** 可疑: statistics say so, or it may be meant · 统计上可疑，或可能是有意为之
- **convention** 约定: a framework's known choice, recognised and allowed for · 某框架的已知做法，已识别并据此判断
- **note** 备注: worth knowing · 值得知道

γ, λ, β and the KL estimator are inferred from the numbers where they are not given; the report says which were. Statistical
findings need |z| > 5 and an effect that matters.

## What a dump can decide · 从数据能判断什么

Of the 48 classes 27 show in one dump, 18 in one that has the columns most lack (new log-probs, logged losses, weight
versions) or in several steps, 3 only with the models or texts at hand. Where two classes give the same numbers on a batch,
the report names both instead of guessing: without tool tokens, for example, a recursion that skips masked slots and one that
decays over them are the same. A value column that is wrong in itself but used consistently keeps every identity, and only
a replay with the critic's weights can show it.

48 类中 27 类单份数据即可判断，18 类需要多数框架不写的列或多步数据，3 类要有模型或文本。两类在这批数据上数值相同时，报告同时列出而不猜。

| class | what | 内容 | one dump | seen in |
|---:|---|---|---|---|
"""


def audit_page() -> str:
    """docs/audit.md, from the catalogue and the faults."""
    checks()  # imports every family, whose faults register themselves
    from mingce.audit import replay, steps  # noqa: F401

    lines = [AUDIT_HEAD.rstrip("\n")]
    for number, known in CLASSES.items():
        place = known.link.removeprefix("https://github.com/")
        lines.append(f"| {number} | {known.en} | {known.zh} | {known.decidable} | [{place}]({known.link}) |")
    lines += ["", "## Findings · 能报出的发现", ""]
    for severity in SEVERITIES:
        faults = [fault for fault in FAULTS.values() if fault.severity == severity]
        lines += [f"### {severity}", ""]
        for fault in sorted(faults, key=lambda fault: (fault.classes or (99,), fault.code)):
            lines += _fault(fault)
    return "\n".join(lines)


def _fault(fault: Fault) -> list[str]:
    classes = ", ".join(map(str, fault.classes))
    facts = [f"class {classes}"] if len(fault.classes) == 1 else [f"one of the classes {classes}"] if classes else []
    facts += [f"`{fault.formula}`"] if fault.formula else []
    facts += [f"[report]({fault.link})"] if fault.link else []
    english, chinese = (
        " ".join(unfilled(text[i]) for text in (fault.title, fault.cause, fault.change) if text[i]) for i in (1, 0)
    )
    lines = [f"#### {fault.code}", ""]
    if facts:
        lines += [" · ".join(facts), ""]
    return [*lines, english, "", chinese.replace("。 ", "。"), ""]


def scaling_page() -> str:
    """Written by hand around tables that `mingce plan` makes."""
    return refreshed((ROOT / "docs" / "scaling.md").read_text(encoding="utf-8"))


PAGES = {
    "audit.md": audit_page,
    "columns.md": columns_page,
    "config.md": config_page,
    "metrics.md": metrics_page,
    "scaling.md": scaling_page,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where the pages are")
    options = parser.parse_args()
    stale = []
    for name, render in PAGES.items():
        page, text = options.docs / name, render()
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not options.check:
                page.parent.mkdir(parents=True, exist_ok=True)
                page.write_text(text, encoding="utf-8")
    if stale:
        print(f"{'stale' if options.check else 'written'}: {', '.join(stale)}")
    raise SystemExit(1 if stale and options.check else 0)


if __name__ == "__main__":
    main()
