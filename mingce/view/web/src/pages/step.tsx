/** One step: its rollouts as a table to sort, filter and search, and how its numbers are spread. */
import { settingsRead } from "../credit";
import { useState } from "preact/hooks";
import { exported, has, paths, useData, useNews } from "../api";
import { toSearch, useKeys } from "../keys";
import { Histogram } from "../histogram";
import { Await } from "../loading";
import { number } from "../numbers";
import { usePrefs } from "../prefs";
import { go, to } from "../route";
import { RolloutTable } from "../rollout_table";
import type { Run, Step as StepData } from "../types";

const SPREAD: [string, string, string, string][] = [
  ["rewards", "Σ rₜ", "每条回答的奖励", "reward of a rollout"],
  ["advantages", "Aₜ", "优势", "advantages"],
  ["ratio", "ρₜ", "新旧策略之比", "ratios"],
];

export function Step({ id, step, query }: { id: string; step: number; query: URLSearchParams }) {
  const { say } = usePrefs();
  const first = useData<StepData>(paths.step(id, step));
  const whole = useData<StepData>(first.data && !first.data.histograms ? paths.whole(id, step) : null); // a large step takes seconds
  const data = whole.data ? whole : first;
  const [live, setLive] = useState(false);
  const run = useData<Run>(paths.run(id), useNews(id, live));
  if (run.data && (run.data.status === "training") !== live) setLive(run.data.status === "training");
  const steps = run.data?.ledger_steps ?? [];
  const place = steps.indexOf(step);
  const [before, after] = [place > 0 ? steps[place - 1] : null, place >= 0 ? (steps[place + 1] ?? null) : null];
  useKeys({
    "/": toSearch,
    ArrowLeft: before === null ? undefined : () => go(to.step(id, before)),
    ArrowRight: after === null ? undefined : () => go(to.step(id, after)),
  });
  return (
    <main class="wide">
      <header class="page-head">
        <h1>{say(`第 ${step} 步`, `Step ${step}`)}</h1>
        <nav class="walk" aria-label={say("前后的步", "Steps before and after")}>
          {before !== null && <a href={to.step(id, before)}>← {before}</a>}
          {after !== null && <a href={to.step(id, after)}>{after} →</a>}
        </nav>
        {!exported && <a href={to.worst(id, step)}>{say("最突出的 token", "Worst tokens")}</a>}
        {has(paths.audit(id, step)) && (
          <a class="button" href={to.audit(id, { step })}>
            {say("审计这一步", "Audit this step")}
          </a>
        )}
      </header>
      <Await of={data}>
        {(found) => (
          <>
            {whole.error && <p class="card notice" role="alert">{whole.error.message}</p>}
            {!found.histograms && !whole.error && (
              <p class="muted" role="status">{say("在统计这一步的全部回答……", "Looking through all rollouts of this step …")}</p>
            )}
            <div class="histograms">
              {SPREAD.map(([name, symbol, zh, en]) =>
                found.histograms?.[name]?.counts.length ? (
                  <Histogram key={name} title={say(zh, en)} symbol={symbol} data={found.histograms[name]} />
                ) : null,
              )}
            </div>
            <Facts data={found} />
            <RolloutTable id={id} data={found} query={query} />
          </>
        )}
      </Await>
    </main>
  );
}

function Facts({ data }: { data: StepData }) {
  const { say } = usePrefs();
  const { settings, whitening } = data;
  const facts: [string, string][] = [
    ...(settings.estimator ? [[say("估计器", "estimator"), settings.estimator] as [string, string]] : []),
    ...settingsRead(settings).filter(([, value]) => value !== null).map(([symbol, value]): [string, string] => [symbol, number(value)]),
    ...(settings.beta !== null ? [["β", number(settings.beta)] as [string, string]] : []),
    ...(settings.clip_low !== null || settings.clip_high !== null
      ? [["ε", `${number(settings.clip_low)} / ${number(settings.clip_high)}`] as [string, string]]
      : []),
  ];
  if (whitening) facts.push(["μ(A)", number(whitening.mean)], ["σ(A)", number(whitening.std)], [say("token 数", "tokens"), whitening.count.toLocaleString("en-GB")]);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
