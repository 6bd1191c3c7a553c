/** A text in all rollouts of a run: the newest steps first, more of them when asked. */
import { useEffect, useState } from "preact/hooks";
import { get, paths } from "../api";
import { usePrefs } from "../prefs";
import { to } from "../route";
import { SearchBox } from "../search_box";
import { toSearch, useKeys } from "../keys";
import type { SearchResult, StepHits } from "../types";

interface State {
  steps: StepHits[];
  seen: number;
  left: number;
  next: number | null;
  busy: boolean;
  error: string | null;
}
const NOTHING: State = { steps: [], seen: 0, left: 0, next: null, busy: false, error: null };

export function Search({ id, query }: { id: string; query: URLSearchParams }) {
  const { say } = usePrefs();
  const text = query.get("text") ?? "";
  const [state, setState] = useState<State>(NOTHING);
  useKeys({ "/": toSearch });
  const load = (before: number | null) => {
    let wanted = true;
    setState((old) => ({ ...(before === null ? NOTHING : old), busy: true }));
    get<SearchResult>(paths.search(id, text, before)).then(
      (found) =>
        wanted && setState((old) => ({ steps: [...old.steps, ...found.steps], seen: old.seen + found.seen, left: found.left, next: found.next, busy: false, error: null })),
      (error: Error) => wanted && setState((old) => ({ ...old, busy: false, error: error.message })),
    );
    return () => {
      wanted = false;
    };
  };
  useEffect(() => (text ? load(null) : setState(NOTHING)), [id, text]);
  const count = state.steps.reduce((sum, one) => sum + one.count, 0);
  return (
    <main>
      <h1>{say("搜索", "Search")}</h1>
      <SearchBox key={text} id={id} text={text} />
      {state.error && <p class="card notice" role="alert">{state.error}</p>}
      {text && (
        <p class="muted" role="status" data-seen={state.busy ? undefined : state.seen}>
          {state.busy
            ? say("搜索中…", "Searching…")
            : count === 0
              ? say(`没有找到；看过 ${state.seen} 步`, `Nothing found; ${many(state.seen, "step")} looked through`)
              : say(`看过 ${state.seen} 步，其中 ${state.steps.length} 步的 ${count} 条有它`, `In ${many(count, "rollout")} of ${many(state.steps.length, "step")}; ${many(state.seen, "step")} looked through`)}
          {!state.busy && state.left > 0 && say(`；还有 ${state.left} 步没有看。`, `; ${many(state.left, "step")} left.`)}
        </p>
      )}
      {state.steps.map((one) => (
        <StepCard key={one.step} id={id} text={text} found={one} />
      ))}
      {state.next !== null && (
        <button type="button" class="more" disabled={state.busy} onClick={() => load(state.next)}>
          {say("继续往前搜", "Look further back")}
        </button>
      )}
    </main>
  );
}

const many = (n: number, what: string): string => `${n} ${what}${n === 1 ? "" : "s"}`;

function StepCard({ id, text, found }: { id: string; text: string; found: StepHits }) {
  const { say } = usePrefs();
  return (
    <section class="card">
      <h2>
        <a href={to.step(id, found.step, { search: text })}>{say(`第 ${found.step} 步：${found.count} 条`, `Step ${found.step}: ${found.count}`)}</a>
      </h2>
      <ul class="hits">
        {found.hits.map((hit) => (
          <li key={hit.row}>
            <a href={to.rollout(id, found.step, hit.row)}>#{hit.row}</a>
            <span>
              {hit.in_response && <span class="muted hit-question">{hit.question}</span>}
              {hit.before}
              <mark>{hit.match}</mark>
              {hit.after}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
