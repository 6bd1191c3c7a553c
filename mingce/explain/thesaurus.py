"""The field's terms in both languages, one concept a key, and words that say nothing about a subject."""

from __future__ import annotations

CONCEPTS: dict[str, tuple[str, ...]] = {
    "value": (
        "价值函数", "价值估计", "价值", "估值", "局面估计", "value function", "values", "value", "vpreds", "v(s)",
        "v_t", "v_{t+1}", "v_t+1", "v(0)", "v_0", "v(s_t)",
    ),
    "critic": ("价值网络", "评论家", "critic", "value network", "value model", "value head"),
    "advantage": ("优势函数", "优势", "advantages", "advantage", "a_t", "a_{t+1}"),
    "return": ("累计回报", "累积回报", "回报", "returns", "return", "r_t^λ", "reward to go", "g_t", "到手的总和"),
    "reward": ("即时奖励", "奖励", "rewards", "reward", "r_t", "r(0)", "r_0", "r(1)", "r_{t+1}"),
    "score": ("得分", "打分", "分数", "scores", "score"),
    "delta": (
        "td 误差", "td误差", "td 残差", "td残差", "时序差分误差", "td error", "td errors",
        "temporal difference error", "delta", "deltas", "δ",
    ),
    "td": ("时序差分", "temporal difference", "td learning", "td 学习"),
    "bellman": ("贝尔曼方程", "贝尔曼", "bellman"),
    "gae": ("广义优势估计", "gae"),
    "mc": ("蒙特卡洛", "蒙特卡罗", "monte carlo", "mc"),
    "lambda": ("λ", "lambda", "lam"),
    "gamma": ("γ", "gamma", "折扣因子", "折扣"),
    "beta": ("β", "beta", "kl coef", "kl 系数"),
    "bootstrap": ("自举", "bootstrapping", "bootstrap", "bootstrapped"),
    "selfstart": ("自启动", "自动启动", "开机启动", "self starting", "self start", "自己启动", "启动自己"),
    "credit": ("信用分配", "功劳分配", "credit assignment", "assign credit"),
    "backward": (
        "从后往前", "倒着", "反向递推", "往前推", "从最后", "backwards", "backward", "from the back", "from the end",
        "from the last",
    ),
    "forward": ("从前往后", "正着", "forward"),
    "whiten": (
        "白化", "标准化", "归一化优势", "whitening", "whitened", "whiten", "masked whiten",
        "advantage normalization", "减均值", "减去均值", "subtract the mean",
    ),
    "raw": ("未白化", "白化之前", "whiten前", "白化前", "unwhitened", "raw"),
    "index": ("下标", "索引", "角标", "indices", "indexed", "index", "subscripts", "subscript", "t-1", "t+1"),
    "align": ("对齐", "aligned", "alignment"),
    "state": ("状态", "states", "state"),
    "action": ("动作", "actions", "action"),
    "transition": ("状态转移", "转移", "transitions", "transition"),
    "before": ("之前", "before"),
    "after": ("之后", "after"),
    "move": ("落子", "下棋", "棋子", "一子", "局面", "裁判", "走棋", "stone", "stones", "referee", "chess", "move"),
    "variance": ("方差", "variance", "抖动", "noisy", "noise", "噪声", "抖", "更稳", "不稳"),
    "bias": ("偏差", "有偏", "无偏", "bias", "biased", "unbiased"),
    "excess": ("超额收益", "超额", "excess", "多赚", "多得", "surplus", "surpluses"),
    "sum": (
        "之和", "加起来", "求和", "相加", "add up", "sum", "sums", "total", "总和", "合计", "加总", "total of",
        "累加", "totals",
    ),
    "telescope": ("望远镜", "相消", "telescoping", "telescopes", "telescope"),
    "ppo": ("近端策略优化", "ppo"),
    "trpo": ("trpo", "代理目标", "surrogate", "cpi", "保守策略迭代", "conservative policy iteration"),
    "clip": ("裁剪", "截取", "clipping", "clipped", "clips", "clip"),
    "ratio": (
        "概率比", "比值", "比率", "重要性采样", "importance sampling", "importance ratio", "ratios", "ratio",
        "probability ratio", "π/π_old", "概率之比", "倍数",
    ),
    "reference": (
        "参考模型", "参考策略", "reference model", "reference policy", "reference", "ref log prob", "ref log probs",
        "π_ref", "pi_ref", "ref", "参考的模型", "frozen model", "冻结的模型",
    ),
    "kl": ("kl 散度", "kl散度", "kl 惩罚", "kl惩罚", "kl penalty", "kl"),
    "kestimator": ("k1", "k2", "k3", "low var kl"),
    "entropy": ("熵", "entropy"),
    "aggregate": ("聚合", "token mean", "seq mean", "loss agg mode", "aggregation", "aggregated"),
    "loss": ("损失", "losses", "loss"),
    "policy": ("策略", "policy"),
    "actor": ("actor", "演员"),
    "module": ("模块", "角色", "四个模型", "modules", "module", "roles", "four models"),
    "output": ("输出", "outputs", "output", "吐出来", "吐出"),
    "token": ("token 级别", "token级别", "token 级", "token level", "逐 token", "per token"),
    "mask": ("掩码", "masks", "mask", "填充", "padding", "pad"),
    "eos": ("eos", "结束符", "end of sequence"),
    "truncate": (
        "截断", "砍断", "超长", "长度上限", "最大长度", "max length", "length limit", "truncated", "truncation",
        "cut off", "cut by",
    ),
    "group": ("组内", "分组", "grpo", "rloo", "dr. grpo", "group"),
    "sparse": ("稀疏", "sparse"),
    "dense": ("稠密", "密集", "dense"),
    "positive": ("正奖励", "正的", "大于 0", "大于0", "positive"),
    "fall": (
        "递减", "越来越小", "下降", "变小", "往下", "越来越少", "decrease", "decreasing", "smaller", "fall",
        "go down", "shrink", "shrinking", "越低", "变低", "走低", "越少", "drop", "drops", "lower", "goes down",
    ),
    "rise": (
        "递增", "越来越大", "上升", "变大", "increase", "increasing", "rise", "rising", "climb", "go up", "grow",
        "越来越高", "越高", "变高", "走高", "higher", "goes up",
    ),
    "fit": ("拟合", "回归", "fitted", "fits", "fit", "regressed", "regression", "regress"),
    "allocate": ("分摊", "分给", "平均分", "allocation", "allocations", "allocate"),
    "subtract": ("相减", "减去", "减掉", "subtract", "minus"),
    "image": (
        "图片", "图中", "截图", "照片", "这张图", "看图", "识图", "ocr", "picture", "screenshot", "image", "images",
        "photo", "的图", "张图", "贴图", "图里", "图上", "photos", "pictures", "screenshots",
    ),
    "dialogue": (
        "聊天记录", "聊天内容", "对话", "问答", "聊天", "dialogue", "conversation", "chat", "q&a", "session", "聊的",
        "聊过", "说过的话", "we said", "what was said", "聊了", "our talk",
    ),
    "save": (
        "保存", "导出", "写入", "写进", "存成", "落盘", "记录", "save", "export", "store", "dump", "log of", "keep",
        "存下来", "存下", "存到", "存个", "备份", "archive", "保留", "keep a copy",
    ),
    "file": ("文件", "markdown", "md", "file"),
    "logprob": ("对数概率", "log probs", "log prob", "logprobs", "logprob", "old log probs"),
    "gradient": ("梯度", "gradients", "gradient"),
    "expectation": ("预期", "期望", "expectation", "expected", "expectations"),
    "target": ("目标值", "学习目标", "标签", "label", "labels", "targets", "target"),
    "first": (
        "刚开始", "一开始", "第一次更新", "第一次", "最开始", "还没更新", "first update", "at first",
        "at the beginning", "before any",
    ),
    "q_value": ("q 值", "q值", "q value", "q function", "q 函数"),
    "zero": ("subzero", "第 0 步", "第 0 个", "first reward", "first value", "第一个奖励"),
    "suffice": (
        "就够了", "够了", "足够", "够吗", "够不够", "只要", "只需要", "只需", "就可以", "就行", "两个量", "两样",
        "还需要", "enough", "suffice", "sufficient", "besides", "anything else", "nothing else",
    ),
    "input": ("输入", "inputs", "input"),
    "rough": ("粗糙", "粗略", "rough", "crude"),
    "definition": ("精确定义", "严格定义", "定义", "definition", "definitions", "precisely", "precise", "exact"),
    "other_field": (
        "信用卡", "过拟合", "欠拟合", "credit card", "overfitting", "stock", "stocks", "股票", "基金", "value of pi",
        "diffusion", "扩散模型",
    ),
    "contain": ("包含", "算不算", "包括", "include", "includes", "included", "contain", "contains", "part of"),
}  # fmt: skip

_STOP_WORDS = """
    a about all also an and another any are aren't as at be been being best between but by called can could day
    did difference different do does doesn't doing don't done each even every exactly example explain for from
    get give given go good got had has have here how i i'm if in into is isn isn't it its itself just know let
    like ll long make makes many me mean meaning means model models more most much my name need new no not now
    number numbers of ok okay on one only or other our out over people please re really right s same say see
    shall should show simply so some start such t take tell than that the their them then there these they thing
    things this those thus time to today too understand up us use used using ve very want was way we well were
    what when where which who whole why will with without word words work works would yes you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

ZH_FILLERS = (
    "是什么意思", "是不是", "为什么", "怎么样", "什么是", "有什么", "是什么", "什么意思", "能不能", "可不可以",
    "对不对", "怎么", "如何", "为何", "什么", "哪个", "哪些", "多少", "吗", "呢", "吧", "么", "啊", "请问", "请",
    "一下", "一个", "这个", "那个", "这里", "我", "你", "它", "的", "了", "是", "和", "与", "跟", "在", "就", "都",
    "也", "还", "把", "被", "会", "要", "有", "没", "不", "对", "到底", "应该", "可以", "直接", "具体", "给出",
    "解释", "结合代码", "代码", "举例", "为例", "例子", "示例", "说明", "分析", "理解", "正确", "意思", "含义",
    "觉得", "感觉", "知道", "如果", "那么", "因为", "所以", "但是", "然后", "首先", "进行", "用", "来", "去", "上",
    "下", "里", "中", "个", "每",
)  # fmt: skip
