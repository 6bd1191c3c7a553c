"""The policy: the numbers of a token, what the modules put out, and the topics of its objective."""

from __future__ import annotations

from mingce.explain.topic import Topic, listed
from mingce.explain.topics import averages, kl, surrogate, tutor

_FIVE = Topic(
    "five_quantities",
    (
        "逐 token 的五个量：得分、奖励、价值、优势、回报",
        "The five numbers of a token: score, reward, value, advantage, return",
    ),
    (
        (
            "token 级别的五个量都是啥？",
            "score、reward、value、return、advantage 分不清",
            "PPO 一个 token 上要算哪些东西",
            "逐 token 的得分 奖励 价值 优势 回报 怎么计算，有什么物理含义",
            "token level scores rewards values returns advantages 计算过程",
            "用一句话的例子把每个 token 的账算一遍",
        ),
        (
            "What are the token-level quantities in PPO?",
            "score vs reward vs value vs return vs advantage",
            "How are token level scores, rewards, values, returns, advantages computed?",
            "physical meaning of each per-token quantity",
            "walk through all the numbers of one answer, token by token",
        ),
    ),
    (
        (
            "把回答“{response}”想成一场闯关，每说一个词是一关，旁边坐着一位教练。\n\n"
            "- **得分**：老师当场给的分，{scores}。多数词是 0，答完才见分晓。\n"
            "- **奖励**：得分再扣掉一点“变样费”（说话离原来的自己越远，扣得越多），{rewards}。\n"
            "- **价值**：每个词说出口之前，教练猜“从现在到结束还能拿多少”，{values}。\n"
            "- **优势**：这个词让结果比教练猜的好多少，也就是它的功劳，{advantages}。\n"
            "- **回报**：事后看，教练当时该猜多少，{returns}。\n\n"
            "拿“{token}”来说：说之前教练猜 {value}，它的功劳是 {advantage}，所以教练当时该猜 {return}。",
            "Think of the answer “{response}” as a game: every word is one move, and a coach sits beside.\n\n"
            "- **Score**: the points given on the spot, {scores}. Mostly 0; the verdict comes at the end.\n"
            "- **Reward**: the score less a small fee for talking unlike one's old self, {rewards}.\n"
            "- **Value**: before each word the coach guesses how much is still to come, {values}.\n"
            "- **Advantage**: how much better things went, thanks to this word, than the coach had guessed: its credit, {advantages}.\n"
            "- **Return**: what the coach should have guessed, seen afterwards, {returns}.\n\n"
            "Take “{token}”: before it the coach guessed {value}; its credit is {advantage}; so the guess should have been {return}.",
        ),
        (
            "下标从 0 开始：`s_t` 是提示加前 t 个 token，`a_t` 是第 t 个 token。\n\n"
            "- **scores**（动作列）：任务对选出 `a_t` 的打分，稀疏时只落在最后一个被选 token：{scores}。\n"
            "- **rewards**（动作列）：`r_t = score_t − β·k_t`，转移 `s_t → s_{t+1}` 的即时奖励：{rewards}。\n"
            "- **values**（状态列）：`V(s_t)`，critic 在第 t 个 token 之前读出，估计从 `r_t` 起的全部折扣奖励：{values}。\n"
            "- **advantages**（动作列）：`δ_t = r_t + γ·V(s_{t+1}) − V(s_t)` 从后往前累积而成，未白化：{advantages}。\n"
            "- **returns**（状态列）：`R_t = A_t + V(s_t)`，critic 的目标，用未白化的优势：{returns}。\n\n"
            "读法：“{token}”之前估 {value}，这一步的 TD 误差 {delta}，连同后面的传回来共 {advantage}，于是目标是 {return}。策略损失用白化后的优势，价值损失用 returns。\n\n"
            "常见错误：把 `values[t]` 当成第 t 个 token 之后的估计；用白化后的优势去算 returns；把 λ < 1 时的 returns 叫作蒙特卡洛回报（它是 λ-回报）。",
            "Indices start at 0: `s_t` is the prompt and the first t tokens, `a_t` is token t.\n\n"
            "- **scores** (of the action): what the task gives for choosing `a_t`; a sparse one sits on the last chosen token: {scores}.\n"
            "- **rewards** (of the action): `r_t = score_t − β·k_t`, earned by the transition `s_t → s_{t+1}`: {rewards}.\n"
            "- **values** (of the state): `V(s_t)`, read before token t, estimates all discounted reward from `r_t` on: {values}.\n"
            "- **advantages** (of the action): `δ_t = r_t + γ·V(s_{t+1}) − V(s_t)`, accumulated from the end, raw: {advantages}.\n"
            "- **returns** (of the state): `R_t = A_t + V(s_t)`, the critic's target, made of raw advantages: {returns}.\n\n"
            "To read it: before “{token}” the estimate was {value}; this step's TD error is {delta}; with what is passed back from later it makes {advantage}; so the target is {return}. The policy loss uses whitened advantages, the value loss uses returns.\n\n"
            "Common mistakes: taking `values[t]` for the estimate after token t; making returns of whitened advantages; calling the returns Monte Carlo returns when λ < 1 (they are λ-returns).",
        ),
        (
            "从 MDP 的定义出发。`s_{t+1} = (s_t, a_t)`，`r_t = r(s_t, a_t, s_{t+1})`，`V^π(s) = E[Σ_{k≥0} γ^k r_{t+k} | s_t = s]`，`Q^π(s, a) = E[r_t + γ·V^π(s_{t+1}) | s_t = s, a_t = a]`，`A^π = Q^π − V^π`。\n\n"
            "1. `V^π(s_t) = E_{a~π}[Q^π(s_t, a)]`，故 `E_{a~π}[A^π(s_t, a)] = 0`：优势是相对该状态平均水平的好坏。\n"
            "2. 若 `V = V^π`，`E[δ_t | s_t, a_t] = Q^π − V^π = A^π`；GAE 的其余各项 `(γλ)^l·δ_{t+l}`（l ≥ 1）在给定 `s_{t+l}` 时期望为 0，所以 `A_t` 也无偏。\n"
            "3. `R_t = V(s_t) + A_t`，故 `E[R_t | s_t] = V^π(s_t)`：平方损失的最小点 `E[R_t | s_t]` 正是 `V^π`，critic 因此回归 `R_t`。\n\n"
            "例中逐 token 有 `R_t − A_t = V(s_t)`：“{token}”处 `{return} − {advantage} = {value}`，与 critic 给出的相符。",
            "From the MDP: `s_{t+1} = (s_t, a_t)`, `r_t = r(s_t, a_t, s_{t+1})`, `V^π(s) = E[Σ_{k≥0} γ^k r_{t+k} | s_t = s]`, `Q^π(s, a) = E[r_t + γ·V^π(s_{t+1}) | s_t = s, a_t = a]`, `A^π = Q^π − V^π`.\n\n"
            "1. `V^π(s_t) = E_{a~π}[Q^π(s_t, a)]`, hence `E_{a~π}[A^π(s_t, a)] = 0`: an advantage is measured against the state's own average.\n"
            "2. If `V = V^π`, then `E[δ_t | s_t, a_t] = Q^π − V^π = A^π`; the other terms of GAE, `(γλ)^l·δ_{t+l}` with l ≥ 1, have mean 0 given `s_{t+l}`, so `A_t` is unbiased too.\n"
            "3. `R_t = V(s_t) + A_t`, so `E[R_t | s_t] = V^π(s_t)`: the squared loss is least at `E[R_t | s_t]`, which is `V^π`; that is why the critic is regressed on `R_t`.\n\n"
            "In the example `R_t − A_t = V(s_t)` on every token: for “{token}”, `{return} − {advantage} = {value}`, which is what the critic had said.",
        ),
    ),
    needs=("scores", "rewards", "values", "advantages", "returns"),
    formula="r_t = score_t − β·k_t,   δ_t = r_t + γ·V(s_{t+1}) − V(s_t),   A_t = Σ_l (γλ)^l·δ_{t+l},   R_t = A_t + V(s_t)",
    each="δ_{t} = {reward} + {gamma}·{next_value} − {value} = {delta};  R_{t} = {advantage} + {value} = {return}",
    table=("scores", "rewards", "values", "deltas", "advantages", "returns"),
    code=(
        "mingce.algorithms.kl.kl_rewards",
        "mingce.algorithms.advantage.td_errors",
        "mingce.algorithms.advantage.gae",
    ),
    related=("state_action_index", "advantage_inputs", "modules", "whitening"),
)

_MODULES = Topic(
    "modules",
    ("actor、critic、参考模型、奖励各输出什么", "What actor, critic, reference and reward put out"),
    (
        (
            "actor critic ref reward 这几个模型都输出啥",
            "四个模块的输出形状是什么",
            "PPO 训练一步里每个模型吐出什么张量",
            "generate_sequences compute_values compute_log_prob compute_reward 的返回",
            "参考模型和奖励模型给的是什么，长什么样",
            "一个 prompt 进来，数据怎么在各个角色之间流动",
        ),
        (
            "What does each model output in PPO training?",
            "shapes of the actor, critic, ref and reward model outputs",
            "what comes out of generate, compute_values, compute_log_prob, compute_reward",
            "the four roles and their tensors for one prompt",
            "data flow between actor, critic, reference and reward",
        ),
    ),
    (
        (
            "像排一出小话剧，四个人各管一件事。\n\n"
            "- **演员**（actor）说台词：“{response}”，并记下自己说每个词时有多大把握。\n"
            "- **教练**（critic）在每个词之前猜还能拿多少分：{values}。\n"
            "- **原来的自己**（参考模型）不说话，只标出换作从前会多爱说这些词。\n"
            "- **评委**（奖励）给分：{scores}。\n\n"
            "演员记的把握和“原来的自己”标的一比，就知道变样了多少，要收一点费。四份记录凑齐，才能算出每个词的功劳。",
            "Like putting on a small play, four people with one task each.\n\n"
            "- The **performer** (actor) says the lines, “{response}”, and notes how sure each word was.\n"
            "- The **coach** (critic) guesses before each word how much is still to come: {values}.\n"
            "- The **old self** (reference) says nothing; it only marks how much it would have liked each of these words.\n"
            "- The **judge** (reward) gives the points: {scores}.\n\n"
            "Comparing the performer's notes with the old self's shows how much has changed, and a small fee is charged for that. Only with all four records can the credit of each word be worked out.",
        ),
        (
            "提示“{prompt}”，回答“{response}”，{count_chosen} 个被选 token；以下每行形状都是 `[B, T]`，这里 B = 1。\n\n"
            "- **actor**：`token_ids`、`response_mask`，以及 `old_log_probs` = {old_log_probs}（采样后、更新前，训练端前向重算）。\n"
            "- **critic**：`values` = {values}；第 t 个数在第 t 个 token 的前一个位置读出。\n"
            "- **reference**：`ref_log_probs` = {ref_log_probs}；参数冻结，只前向。\n"
            "- **reward**：`scores` = {scores}；结果奖励写在最后一个被选 token（“{last_token}”，槽位 {last}）上。\n\n"
            "随后是纯算术，不再过模型：`kl` = {kl_list}，`rewards` = {rewards}，`advantages` = {advantages}，`returns` = {returns}。更新时 actor 再给出 `new_log_probs`，critic 再给出 `new_values`。\n\n"
            "容易弄错：`ref_log_probs` 要与 actor 用同一温度、同一串 token；`scores` 是标量打分铺到 `[B, T]` 上，不是每个 token 都有。",
            "Prompt “{prompt}”, response “{response}”, {count_chosen} chosen tokens; every line below has shape `[B, T]`, here with B = 1.\n\n"
            "- **actor**: `token_ids`, `response_mask`, and `old_log_probs` = {old_log_probs} (after sampling, before any update, by the trainer's own forward pass).\n"
            "- **critic**: `values` = {values}; number t is read one position before token t.\n"
            "- **reference**: `ref_log_probs` = {ref_log_probs}; frozen, forward only.\n"
            "- **reward**: `scores` = {scores}; an outcome score is written on the last chosen token (“{last_token}”, slot {last}).\n\n"
            "What follows is arithmetic, no model involved: `kl` = {kl_list}, `rewards` = {rewards}, `advantages` = {advantages}, `returns` = {returns}. During the update the actor gives `new_log_probs` and the critic `new_values`.\n\n"
            "Easy to get wrong: `ref_log_probs` need the same temperature and the same tokens as the actor's; `scores` are one scalar laid out on `[B, T]`, not a number for every token.",
        ),
        (
            "为什么正好要这四份输出：策略梯度是 `∇J = E[Σ_t A(s_t, a_t)·∇log π(a_t|s_t)]`，逐项看各需要什么。\n\n"
            "1. `∇log π(a_t|s_t)` 与 `ρ_t` 需要 actor 的对数概率（旧的作分母，新的可求导）。\n"
            "2. `A` 需要奖励与基线。带 KL 约束的目标 `E[score] − β·KL(π‖π_ref)` 由链式法则等于逐 token 之和：`log(π(y|x)/π_ref(y|x)) = Σ_t (log π(a_t|s_t) − log π_ref(a_t|s_t))`，所以 reward 的打分加 reference 的对数概率就决定了每个 `r_t`。\n"
            "3. 基线需要 `V(s_t)`，由 critic 给出；它只依赖 `s_t`，不改变梯度的期望。\n\n"
            "于是 (`old_log_probs`, `ref_log_probs`, `scores`, `values`) 加上 γ、λ、β 足以定出其余各列：例中“{token}”的 `k_t` 由 `{old_log_prob} − ({ref_log_prob})` 得出，为 {kl}。",
            "Why these four and no others: the policy gradient is `∇J = E[Σ_t A(s_t, a_t)·∇log π(a_t|s_t)]`; look at what each factor needs.\n\n"
            "1. `∇log π(a_t|s_t)` and `ρ_t` need the actor's log-probabilities, the old ones as denominator and the new ones to differentiate.\n"
            "2. `A` needs rewards and a baseline. The objective `E[score] − β·KL(π‖π_ref)` splits over tokens by the chain rule, `log(π(y|x)/π_ref(y|x)) = Σ_t (log π(a_t|s_t) − log π_ref(a_t|s_t))`, so the reward's score and the reference's log-probabilities fix every `r_t`.\n"
            "3. The baseline is the critic's `V(s_t)`; it depends on `s_t` only and leaves the expected gradient as it is.\n\n"
            "So (`old_log_probs`, `ref_log_probs`, `scores`, `values`) with γ, λ and β determine every other column: for “{token}”, `k_t` comes from `{old_log_prob} − ({ref_log_prob})` and is {kl}.",
        ),
    ),
    needs=("scores", "old_log_probs", "ref_log_probs", "kl", "rewards", "values", "advantages", "returns"),
    numbers=lambda rollout, t: {"kl_list": listed(rollout["columns"]["kl"])},
    table=("old_log_probs", "values", "ref_log_probs", "scores"),
    code=(
        "mingce.roles.actor.Actor",
        "mingce.roles.critic.Critic",
        "mingce.roles.reference.Reference",
        "mingce.roles.reward.Reward",
    ),
    related=("five_quantities", "reference_not_in_loss", "kl_where"),
)

TOPICS: tuple[Topic, ...] = (_FIVE, _MODULES, *surrogate.TOPICS, *kl.TOPICS, *averages.TOPICS, *tutor.TOPICS)
