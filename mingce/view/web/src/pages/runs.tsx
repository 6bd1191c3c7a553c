/** All runs found; two or more can be laid over each other. */
import { useEffect, useState } from "preact/hooks";
import { exported, get, paths, useData } from "../api";
import { readLook, writtenLook, type CurveLook } from "../curves";
import { Await } from "../loading";
import { number } from "../numbers";
import { usePrefs } from "../prefs";
import { replace, to } from "../route";
import { Sparkline } from "../sparkline";
import { StatusMark } from "../status";
import type { RunSummary } from "../types";
import { Compare, MOST } from "./compare";

const PAGE = 200; // runs in one answer
const AGAIN = 4000; // milliseconds after which the list is asked for anew while a run trains

export function Runs({ query }: { query: URLSearchParams }) {
  const { say } = usePrefs();
  const [asked, setAsked] = useState(0);
  const runs = useData<RunSummary[]>(paths.runs, asked);
  const training = !exported && (runs.data ?? []).some((run) => run.status === "training");
  useEffect(() => {
    if (!training) return;
    const timer = setInterval(() => setAsked((n) => n + 1), AGAIN);
    return () => clearInterval(timer);
  }, [training]);
  const [more, setMore] = useState<RunSummary[]>([]);
  const [done, setDone] = useState(false);
  const load = (offset: number) =>
    void get<RunSummary[]>(paths.moreRuns(offset)).then((found) => {
      setMore([...more, ...found]);
      setDone(found.length === 0);
    });
  const picked = [...new Set((query.get("compare") ?? "").split(",").filter(Boolean))].slice(0, MOST);
  const look = readLook(query);
  const show = (next: string[], how: CurveLook) => replace(to.runs({ compare: next.length ? next.join(",") : null, ...writtenLook(how) }));
  const pick = (id: string) => show(picked.includes(id) ? picked.filter((one) => one !== id) : [...picked, id], look);
  return (
    <main>
      <h1>{say("运行", "Runs")}</h1>
      <Await of={runs}>
        {(all) =>
          all.length === 0 ? (
            <p class="card notice">{say("还没有运行。用 mingce train 开始一个。", "No runs yet. Start one with mingce train.")}</p>
          ) : (
            <>
              <ul class="run-list">
                {[...all, ...more].map((run) => (
                  <RunCard key={run.id} run={run} picked={picked.includes(run.id)} onPick={() => pick(run.id)} />
                ))}
              </ul>
              {!done && !exported && (all.length + more.length) % PAGE === 0 && (
                <button type="button" class="more" onClick={() => load(all.length + more.length)}>
                  {say("更早的运行", "Earlier runs")}
                </button>
              )}
              {all.length > 1 && (
                <p class="muted hint picked" role="status">
                  {picked.length < 2
                    ? say("勾选两个以上即可比较。", "Tick two or more to compare them.")
                    : say(`已勾选 ${picked.length} 个运行：`, `${picked.length} runs are ticked: `)}
                  {picked.length >= 2 && (
                    <button type="button" class="plain link" onClick={() => document.querySelector(".compare-runs")?.scrollIntoView()}>
                      {say("看比较 ↓", "see them compared ↓")}
                    </button>
                  )}{" "}
                  {picked.length > 0 && (
                    <button type="button" class="plain link" onClick={() => show([], look)}>{say("全部取消", "Untick all")}</button>
                  )}
                </p>
              )}
              {picked.length >= 2 && <Compare ids={picked} look={look} onLook={(how) => show(picked, how)} />}
            </>
          )
        }
      </Await>
    </main>
  );
}

function RunCard({ run, picked, onPick }: { run: RunSummary; picked: boolean; onPick: () => void }) {
  const { say, lang } = usePrefs();
  const when = run.updated === null ? null : new Date(typeof run.updated === "number" ? run.updated * 1000 : run.updated);
  return (
    <li class="card run-card">
      <label class="tick-box">
        <input type="checkbox" checked={picked} onChange={onPick} aria-label={say(`比较 ${run.name}`, `Compare ${run.name}`)} />
      </label>
      <div class="run-name">
        <a href={to.run(run.id)}>{run.name}</a>
        <span class="muted path">{run.message ?? run.path}</span>
      </div>
      <StatusMark status={run.status} />
      <span class="run-fact">
        <small>{say("步", "steps")}</small>
        {run.steps}
        {run.total_steps ? <span class="muted"> / {run.total_steps}</span> : null}
      </span>
      <span class="run-fact">
        <small>{say("得分", "score")}</small>
        {number(run.last_score, 3)}
      </span>
      <span class="run-fact">
        <small>{say("估计器", "estimator")}</small>
        {run.estimator ?? "–"}
      </span>
      <Sparkline values={run.spark} />
      <span class="run-fact when muted">{when ? when.toLocaleString(lang === "zh" ? "zh-CN" : "en-GB", { dateStyle: "medium", timeStyle: "short" }) : ""}</span>
    </li>
  );
}
