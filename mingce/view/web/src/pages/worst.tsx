/** The tokens with the largest numbers, of a step or of a run: each leads to its account. */
import { useState } from "preact/hooks";
import { paths, useData } from "../api";
import { visible } from "../chips";
import { Await } from "../loading";
import { number, signed } from "../numbers";
import { usePrefs } from "../prefs";
import { replace, to } from "../route";
import type { WorstTokens } from "../types";

const MEASURES: Record<string, { symbol: string; column: string; zh: string; en: string; why: [string, string] }> = {
  advantages: { symbol: "|Aₜ|", column: "advantages", zh: "优势", en: "advantage", why: ["更新在这里拉得最用力。", "Here the update pulls hardest."] },
  ratio: { symbol: "|log ρₜ|", column: "ratio", zh: "新旧之比", en: "ratio", why: ["这一步里策略在这里变得最多。", "Here the policy moved most within its step."] },
  gap: { symbol: "|log q − log π_old|", column: "rollout_log_probs", zh: "采样与训练之差", en: "sampler against trainer", why: ["采样时的概率和训练时算的差得最远；应当几乎为 0。", "Here the probability at sampling is farthest from the trainer's; it should be nearly 0."] },
  entropy: { symbol: "Hₜ", column: "entropy", zh: "熵", en: "entropy", why: ["策略在这里最拿不准。", "Here the policy was least sure."] },
};

export function Worst({ id, step, query }: { id: string; step: number | null; query: URLSearchParams }) {
  const { say } = usePrefs();
  const by = query.get("by") ?? "";
  const [asked, setAsked] = useState(0);
  const each = query.get("all") !== "1";
  const data = useData<WorstTokens>(paths.worst(id, step, by, each), asked);
  return (
    <main>
      <h1>{step === null ? say("整个运行里最突出的 token", "Worst tokens of the run") : say(`第 ${step} 步里最突出的 token`, `Worst tokens of step ${step}`)}</h1>
      <Await of={data}>{(found) => <Tokens {...{ id, step, found, each }} onMore={() => setAsked(asked + 1)} />}</Await>
    </main>
  );
}

interface TokensProps {
  id: string;
  step: number | null;
  found: WorstTokens;
  /** Only one token of each rollout. */
  each: boolean;
  onMore: () => void;
}

function Tokens({ id, step, found, each, onMore }: TokensProps) {
  const { say } = usePrefs();
  const measure = MEASURES[found.by];
  if (!measure) return <p class="card notice">{say("这里没有能比较的列。", "There is no column to compare here.")}</p>;
  return (
    <>
      <nav class="tabs" aria-label={say("按什么", "By what")}>
        {found.measures.map((name) => (
          <a key={name} href={to.worst(id, step, { by: name, all: each ? null : 1 })} aria-current={name === found.by ? "page" : undefined}>
            {say(MEASURES[name].zh, MEASURES[name].en)} <span class="muted">{MEASURES[name].symbol}</span>
          </a>
        ))}
      </nav>
      <p class="muted" role="status">
        {say(...measure.why)}{" "}
        {found.seen < found.total &&
          (step === null
            ? say(`均匀地看过了 ${found.total} 步中的 ${found.seen} 步。`, `${found.seen} of ${found.total} steps, evenly spread, were looked through.`)
            : say(`只看了前 ${found.seen} 条，共 ${found.total} 条。`, `The first ${found.seen} of ${found.total} rollouts were looked through.`))}
      </p>
      <label class="check-line">
        <input type="checkbox" checked={each} data-setting="each" onChange={() => replace(to.worst(id, step, { by: found.by, all: each ? 1 : null }))} />
        {say("每条回答只列一个（相邻 token 的数几乎一样）", "One token of each rollout (neighbours have nearly the same numbers)")}
      </label>
      <div class="table-box worst">
        <table data-by={found.by}>
          <thead>
            <tr>
              <th class="number">{say(measure.zh, measure.en)}</th>
              {step === null && <th class="number">{say("步", "step")}</th>}
              <th class="number">#</th>
              <th class="number">t</th>
              <th>token</th>
            </tr>
          </thead>
          <tbody>
            {found.tokens.map((one) => (
              <tr key={`${one.step}-${one.row}-${one.token}`}>
                <td class="number">
                  <a href={to.rollout(id, one.step, one.row, { token: one.token, column: measure.column })}>
                    {found.by === "ratio" || found.by === "entropy" ? number(one.value) : signed(one.value)}
                  </a>
                </td>
                {step === null && <td class="number"><a href={to.step(id, one.step)}>{one.step}</a></td>}
                <td class="number">{one.row}</td>
                <td class="number">{one.token}</td>
                <td class="around">
                  <span class="muted hit-question">{one.question}</span>
                  <span>{one.before}</span>
                  <mark>{visible(one.text)}</mark>
                  <span>{one.after}</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {step === null && found.seen < found.total && (
        <button type="button" class="more" onClick={onMore}>{say("再看一些步", "Look through more steps")}</button>
      )}
    </>
  );
}
