/** Which rollout this is, what came of it, and the other samples of its prompt. */
import { has, paths } from "./api";
import { settingsRead } from "./credit";
import { useKeys } from "./keys";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import { go, to } from "./route";
import type { Num, Rollout } from "./types";

interface RolloutHeadProps {
  id: string;
  rollout: Rollout;
  /** The question too: the conversation does not stand below. */
  asked: boolean;
  /** What of the address stays on the way to another rollout. */
  keep: Record<string, string | null>;
}

export function RolloutHead({ id, rollout, asked, keep }: RolloutHeadProps) {
  const { say } = usePrefs();
  const { step, row, rows } = rollout;
  const there = (other: number) => (other >= 0 && other < rows && has(paths.rollout(id, step, other)) ? to.rollout(id, step, other, keep) : null);
  const [before, after] = [there(row - 1), there(row + 1)];
  useKeys({ k: before === null ? undefined : () => go(before), j: after === null ? undefined : () => go(after) });
  const { info, settings } = rollout;
  const siblings = rollout.siblings.filter((one) => has(paths.rollout(id, rollout.step, one.row)));
  const parts = Object.entries((info.score_parts as Record<string, number> | null) ?? {});
  const facts: [string, string][] = [
    [say("得分", "score"), number(info.score as Num)],
    ...parts.map(([name, value]): [string, string] => [name, number(value)]),
    ...(info.finish_reason ? [[say("结束", "finish"), String(info.finish_reason)] as [string, string]] : []),
    ...(settings.estimator ? [[say("估计器", "estimator"), settings.estimator] as [string, string]] : []),
    ...settingsRead(settings).map(([symbol, value]): [string, string] => [symbol, number(value)]),
    ...(settings.beta ? [["β", number(settings.beta)] as [string, string]] : []),
  ];
  return (
    <>
      <header class="page-head">
        <h1>
          {say(`第 ${rollout.step} 步，第 ${rollout.row} 条回答`, `Step ${rollout.step}, rollout ${rollout.row}`)}
        </h1>
        <nav class="walk beside" aria-label={say("前后的回答", "Rollouts before and after")}>
          {before && <a href={before} title={say("按 k", "key: k")}>← #{row - 1}</a>}
          {after && <a href={after} title={say("按 j", "key: j")}>#{row + 1} →</a>}
        </nav>
        <nav class="walk siblings" aria-label={say("同一提示的其他回答", "Other samples of this prompt")}>
          {siblings.length > 1 && <span class="muted">{say("同一提示", "same prompt")}</span>}
          {siblings.length > 1 &&
            siblings.slice(0, 16).map((one) => (
              <a
                key={one.row}
                href={to.rollout(id, rollout.step, one.row)}
                aria-current={one.row === rollout.row ? "page" : undefined}
                title={one.response}
              >
                #{one.row} <span class="muted">{number(one.score, 2)}</span>
              </a>
            ))}
          {siblings.length > 1 && has(paths.samples(id, rollout.step, rollout.row)) && (
            <a href={to.samples(id, rollout.step, rollout.row)}>{say("并排看", "Side by side")}</a>
          )}
        </nav>
      </header>
      {rollout.segments.length > 1 && (
        <nav class="walk segments" aria-label={say("同一段对话", "The same conversation")}>
          {say("聊天模板改写了历史，这段对话因此分成几条：", "The chat template rewrote the history, so the conversation is several rollouts: ")}
          {rollout.segments.map((one) =>
            has(paths.rollout(id, rollout.step, one)) ? (
              <a key={one} href={to.rollout(id, rollout.step, one)} aria-current={one === rollout.row ? "page" : undefined}>
                #{one}
              </a>
            ) : (
              <span key={one}>#{one}</span>
            ),
          )}
        </nav>
      )}
      {rollout.more_tokens && (
        <p class="card notice">
          {say(`这条回答太长，只显示前 ${rollout.tokens.length.toLocaleString("zh-CN")} 个 token。`, `This rollout is too long; its first ${rollout.tokens.length.toLocaleString("en-GB")} tokens are shown.`)}
        </p>
      )}
      {asked && rollout.question && <p class="question">{rollout.question.slice(0, 300)}</p>}
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}
