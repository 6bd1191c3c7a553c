"""Bugs that show only in how lines stand together; right code that looks alike is left in peace."""

from __future__ import annotations

import pytest

from mingce.base.lang import LANGS
from mingce.base.texts import named, texts
from mingce.explain import example
from mingce.explain.conversation import Conversation
from mingce.explain.snippets import read_snippet, snippet_answer
from mingce.explain.snippets.answering import phrase

LOOP = """```python
for mb in minibatches:
    log_prob = policy(mb)
    {old}
    ratio = torch.exp(log_prob - old_log_prob)
    loss = -(torch.min(ratio*adv, ratio.clamp(.8, 1.2)*adv)*mask).sum()/mask.sum()
    loss.backward()
    optimizer.step()
```
fine?"""
WRONG = (
    (LOOP.format(old="old_log_prob = log_prob.detach()"), "old_each_minibatch"),
    (LOOP.format(old="old_log_prob = policy(mb).detach()"), "old_each_minibatch"),
    (LOOP.format(old="old_log_prob = log_prob.clone().detach()"), "old_each_minibatch"),
    ("```\n# in every minibatch, with the current policy\nkl = logprobs - ref_logprobs\n"
     "rewards = scores - beta * kl\n```\nok?", "reward_of_current"),
    ("```\nkld = new_log_probs - ref_log_probs\ntoken_level_rewards = scores - beta * kld\n```", "reward_of_current"),
    ("```\nvpreds = critic(batch)\nreturns = adv + vpreds\nloss = ((vpreds - returns)**2 * mask).sum()/mask.sum()\n```",
     "returns_of_trained"),
    ("```\nvalues = self.critic(obs)\nreturns = advantages + values\nloss = F.mse_loss(values, returns)\n```",
     "returns_of_trained"),
    ("`loss = -(ratio * advantages).clamp(1-eps, 1+eps).mean()`", "clip_of_product"),
    ("`loss = -torch.clamp(ratio * adv, 0.8, 1.2).mean()`", "clip_of_product"),
    ("`ratio = torch.exp(torch.clamp(log_prob - old_log_prob, 1 - eps, 1 + eps))`", "clip_of_log_ratio"),
    ("`pg_loss = -(torch.clamp(ratio, 1-eps, 1+eps) * advantages).mean()`", "clip_missing_min"),
    ("`pg_loss = masked_mean(-advantages * torch.clamp(ratio, 1 - eps, 1 + eps), response_mask)`", "clip_missing_min"),
    ("`ratio = torch.exp(log_prob.detach() - old_log_prob)`", "ratio_detached"),
    ("`vf_loss = 0.5 * masked_mean((vpreds.detach() - returns)**2, response_mask)`", "value_detached"),
    ("```\nvpredclipped = torch.clamp(vpreds, values-0.3, values+0.3)\n"
     "vf_loss = 0.5*torch.min((vpreds-returns)**2,(vpredclipped-returns)**2).mean()\n```", "value_loss_min"),
    ("`loss_v = ((vpred - targets)**2 * mask).mean()`", "mean_over_padding"),
    ("`entropy_loss = torch.mean(entropy * response_mask)`", "mean_over_padding"),
    ("`baseline = rewards.view(-1, num_generations).mean(dim=0)`", "group_axis"),
)  # fmt: skip
RIGHT = (
    LOOP.format(old="old_log_prob = mb['old_log_prob']"),
    LOOP.format(old="old_log_prob = log_prob.detach() if on_policy else mb['old_log_prob']"),
    "```\nfor micro in micro_batches:\n    log_prob = policy(micro)\n    old_log_prob = log_prob.detach()\n"
    "    ratio = torch.exp(log_prob - old_log_prob)\n"
    "    loss = pg_loss / n\n    loss.backward()\noptimizer.step()\n```",
    "```\nkl = logprobs - ref_logprobs\nrewards = scores - beta * kl\n```",
    "```\nkl = old_log_probs - ref_log_probs\nrewards = scores - beta * kl\n```\n用当前策略再算一次行吗",
    "```\nvalues = critic(batch).detach()\nreturns = adv + values\n"
    "vf_loss = ((vpreds - returns)**2 * mask).sum()/mask.sum()\n```",
    "`loss = ((vpred - returns)**2 * mask).mean() / mask.mean()`",
    "`ratio = torch.exp(torch.clamp(log_prob - old_log_prob, -20, 20))`",
    "`baseline = rewards.view(-1, num_generations).mean(dim=1)`",
    "`pg_losses2 = -advantages * torch.clamp(ratio, 1 - eps, 1 + eps)`",
)  # fmt: skip


def said(text: str, lang: str = "en") -> str:
    answer = snippet_answer(text, example.worked(), lang)
    return answer.text if answer is not None else ""


def bugs(lang: str) -> dict[str, str]:
    return named(texts("snippets", lang)["line_bugs"])


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize(("text", "bug"), WRONG)
def test_a_bug_between_lines_is_named(text: str, bug: str, lang: str) -> None:
    answer = said(text, lang)
    assert bugs(lang)[bug] in answer
    for key in ("no_bug", "no_bug_in_known"):
        assert phrase(key, lang) not in answer


@pytest.mark.parametrize("text", RIGHT)
def test_right_code_that_looks_alike_has_none(text: str) -> None:
    answer = said(text)
    assert not [bug for bug, words in bugs("en").items() if words in answer]


def test_a_plain_mean_beside_another_bug_is_spoken_of() -> None:
    note = named(texts("snippets", "en")["line_notes"])["unmasked"]
    assert note in said("`loss = -(ratio * advantages).clamp(1-eps, 1+eps).mean()`")


def test_two_bugs_are_both_named() -> None:
    answer = said("```\nadv = masked_whiten(adv, mask)\nreturns = adv + values\n"
                  "loss_v = ((vpred - returns)**2 * mask).mean()\n```")  # fmt: skip
    assert bugs("en")["whitened_returns"] in answer
    assert bugs("en")["mean_over_padding"] in answer


def test_a_list_that_a_loop_fills_forwards_is_to_be_turned_as_well() -> None:
    loop = (
        "```\nlast = 0\nfor t in range(T):\n    delta = r[:, t] + gamma*(v[:, t+1] if t < T-1 else 0) - v[:, t]\n"
        "    last = delta + gamma*lam*last\n    out.append(last)\nadv = torch.stack(out{turned}, dim=1)\n```"
    )
    assert phrase("turn_list", "en", name="out") in said(loop.format(turned=""))
    assert phrase("turn_list", "en", name="out") not in said(loop.format(turned="[::-1]"))


@pytest.mark.parametrize(("text", "kind"), [
    ("OpenRLHF 这行啥意思：eos_indices = action_mask.size(1) - 1 - "
     "action_mask.long().fliplr().argmax(dim=1, keepdim=True)", "last_position"),
    ("what is this: last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)", "last_position"),
    ("logprobs = torch.masked_fill(logprobs, padding_mask, INVALID_LOGPROB) logprob怎么能是1", "fill_log_probs"),
])  # fmt: skip
def test_an_obscure_line_says_its_purpose_before_anything_else(text: str, kind: str) -> None:
    answer = Conversation().ask(text)
    words = texts("snippets", answer.lang)
    snippet = read_snippet(text)
    assert snippet is not None
    assert named(words["line_why"])[kind] in answer.text
    assert answer.text.startswith((f"- `{snippet.code.strip()}`", named(words["line_why"])[kind]))


def test_code_with_lines_that_are_not_known_is_not_called_right() -> None:
    answer = said("```\nadv, ret = gae(token_level_rewards, values)\nratio = torch.exp(log_prob - old_log_prob)\n"
                  "pg_losses = -advantages * ratio\n```\nis it right?")  # fmt: skip
    assert answer.startswith(phrase("no_bug_in_known", "en"))
    assert "Whether the whole is right cannot be said" in answer
