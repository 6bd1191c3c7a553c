"""About the tutor itself: how a dialogue is kept, and what it cannot do."""

from __future__ import annotations

from mingce.explain.topic import Topic

_SAVE = Topic(
    "save_dialogue",
    ("怎样保存这次对话", "How to keep this dialogue"),
    (
        (
            "聊天记录怎么存",
            "把对话写到文件里",
            "保存成 markdown，不要漏内容",
            "用户提问和助手回答 一比一 原样输出到 md 文件",
            "codex_dialogue 文件在哪，时间戳命名",
            "下次怎么接着聊",
        ),
        (
            "save the conversation to a file",
            "write the chat log as markdown, complete and in order",
            "where is the dialogue stored",
            "how do I continue this conversation later",
            "record questions and answers, timestamp in the file name",
        ),
    ),
    (
        (
            "就像把聊天抄进日记本，一个字都不改。\n\n"
            "输入 `/save`，这次说过的每一问每一答就按先后写进一个文件，文件名里带着时间。想让它每答一次自动记一次，开头用 `mingce ask --log`。\n\n"
            "下次想接着聊，用 `mingce ask --resume 文件名`，它会先把日记读一遍，再从停下的地方说起。",
            "Like copying a chat into a diary without changing a word.\n\n"
            "Type `/save`, and every question and answer so far goes into a file, in order, with the time in its name. To have it written after every answer, start with `mingce ask --log`.\n\n"
            "To go on another day, use `mingce ask --resume FILE`: it reads the diary first and goes on where you stopped.",
        ),
        (
            "- `/save` 或 `/save 路径`：立刻写出到目前为止的全部问答；不给路径则写到 `codex_dialogue/codex_YYYYMMDD_HHMMSS.md`。\n"
            "- `mingce ask --log`：每轮之后自动写，先写临时文件再改名，中断也不会留下半个文件。\n"
            "- `mingce ask --resume FILE`：读回各轮，按顺序重放问题以恢复例子和话题，之后的问答接在同一个文件后面。\n\n"
            "文件是 UTF-8 的 Markdown：`# Chat Dialogue Log`、`## 对话时间`、`## 对话内容`，每轮 `### 问题 N`、`用户：`、`助手：`，轮间用 `---` 隔开；只有问与答，没有工具输出，逐字与屏幕上的一致。",
            "- `/save` or `/save PATH`: writes all questions and answers so far at once; without a path to `codex_dialogue/codex_YYYYMMDD_HHMMSS.md`.\n"
            "- `mingce ask --log`: writes after every round, to a temporary file that is then renamed, so an interruption leaves no half file.\n"
            "- `mingce ask --resume FILE`: reads the rounds back, replays the questions to restore example and topic, and appends what follows to the same file.\n\n"
            "The file is Markdown in UTF-8, with the headings of the dialogue log, one numbered section a round, the question, the answer, and `---` between rounds; questions and answers only, no tool output, word for word what the screen showed.",
        ),
        (
            "要保证的是：写出再读回，一字不差。设 `w` 把若干轮写成文本，`p` 把文本解析回来，需要 `p(w(d)) = d` 对任何 d 成立，于是 `w(p(w(d))) = w(d)`：写 → 读 → 写逐字节相同。\n\n"
            "难处在于问答里可能含有格式自己的记号，例如一段以 `### 问题` 开头的行。若原样写入，p 会在那里多切一轮，等式就破了。办法是写的时候给正文里形似记号的行做标记，读的时候去掉；标记本身也要再标记，使这个变换是单射。单射加上“记号只在行首成立”，p 就唯一确定每轮的边界。\n\n"
            "写文件用“先写临时文件、落盘、再改名”：改名是原子的，任何时刻中断，磁盘上都是上一个完整版本或新的完整版本。",
            "What must hold: written and read back, not a character differs. Let `w` write rounds as text and `p` parse text; `p(w(d)) = d` is needed for every d, and then `w(p(w(d))) = w(d)`: write, read, write is the same byte for byte.\n\n"
            "The difficulty is text that contains the format's own markers, such as a line that begins like the heading of a round. Written as it is, p would cut one round too many there. So lines of the text that look like a marker are marked when written and unmarked when read, and so are lines that already look marked, which makes the change injective. With that, and markers that count only at the start of a line, p finds the bounds of every round uniquely.\n\n"
            "The file is written beside its place, flushed and renamed; a rename is atomic, so whenever it is interrupted the disk holds the last whole version or the new whole one.",
        ),
    ),
    needs=(),
    code=("mingce.explain.dialogue.render", "mingce.explain.dialogue.parse", "mingce.atomic.atomic_write"),
    related=("pictures",),
)

_PICTURES = Topic(
    "pictures",
    ("它看不了图片", "It cannot read pictures"),
    (
        (
            "能看图吗",
            "识别图片里的公式",
            "我发一张截图给你，读一下里面的字",
            "图片转文字",
            "把照片上的内容打出来",
        ),
        (
            "can you see images",
            "read the formula in this picture",
            "I'll send you a screenshot",
            "convert an image to text",
            "what does the photo say",
        ),
    ),
    (
        (
            "我没有眼睛，看不到图片，也不会假装看到了。\n\n"
            "你可以把图上的字或算式打出来给我，打个大概也行；如果是一列数，照样子抄下来就能算。\n\n"
            "反过来我能给你画图：输入 `/plot 图.png`，就把这句话每个词的分数画成曲线。",
            "I have no eyes: I cannot see pictures, and will not pretend to.\n\n"
            "Type what the picture says, roughly will do; if it is a row of numbers, copy it and I can calculate with it.\n\n"
            "The other way round works: `/plot picture.png` draws the numbers of this answer's words as curves.",
        ),
        (
            "这里只处理文字，没有识图模型。请把图中的文字或公式打进来：\n\n"
            "- 公式可以用 LaTeX（`\\delta_t = r_t + \\gamma V_{t+1} - V_t`），也可以直接写 `δ_t`、`A_t`。\n"
            "- 数列照抄：`rewards=[…] values=[…]`，或 `old_log_probs：[[…]]`，例子会换成你的数。\n"
            "- 若图上是 TRPO／PPO 的目标函数，直接问“TRPO 的代理目标”或“PPO 的裁剪”。\n\n"
            "要出图则相反：`/plot 文件.png`（或 .svg）画当前例子的价值、回报、奖励与优势。",
            "Only text is handled here; there is no model that reads pictures. Type what it says:\n\n"
            "- Formulas may be LaTeX (`\\delta_t = r_t + \\gamma V_{t+1} - V_t`) or plain `δ_t`, `A_t`.\n"
            "- Rows of numbers as they stand: `rewards=[…] values=[…]` or `old_log_probs: [[…]]`; the example becomes yours.\n"
            "- If the picture shows the objective of TRPO or PPO, ask for “TRPO's surrogate” or “PPO's clip”.\n\n"
            "Pictures come out, though: `/plot FILE.png` (or .svg) draws value, return, reward and advantage of the example.",
        ),
        (
            "为什么宁可说不会：回答里的每个数都由 float64 的逐步循环从给定的列算出，可以核对。图片要先经识别模型变成文字，错一个负号或下标，后面每个数都错，而且错得看不出来。输入只收文字，“给定的列 → 数”这条链才完整。\n\n"
            "常见的那张图（TRPO 与 PPO 的目标）用文字写出来是 `L^CPI(θ) = Ê_t[ρ_t(θ)·A_t]` 和 `L^CLIP(θ) = Ê_t[min(ρ_t·A_t, clip(ρ_t, 1−ε, 1+ε)·A_t)]`，两者的推导见相关话题。",
            "Why it would rather say no: every number in an answer comes from the given columns by a float64 loop and can be checked. A picture would first pass through a recogniser; one wrong sign or index, and every later number is wrong without showing it. With text as the only input the chain from given columns to numbers is whole.\n\n"
            "The picture people usually mean, the objectives of TRPO and PPO, reads in text `L^CPI(θ) = Ê_t[ρ_t(θ)·A_t]` and `L^CLIP(θ) = Ê_t[min(ρ_t·A_t, clip(ρ_t, 1−ε, 1+ε)·A_t)]`; the related topics derive both.",
        ),
    ),
    needs=(),
    related=("cpi_objective", "ppo_clip", "save_dialogue"),
)

TOPICS: tuple[Topic, ...] = (_SAVE, _PICTURES)
