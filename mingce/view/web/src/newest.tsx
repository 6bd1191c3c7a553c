/** A few of the newest answers, one a prompt, which change while the run trains. */
import { exported, paths, useLatest } from "./api";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import { to } from "./route";
import type { RolloutLine, Run, Table } from "./types";

const SHOWN = 6;

export function Newest({ id, run, news }: { id: string; run: Run; news: number }) {
  const { say } = usePrefs();
  const step = run.ledger_steps.at(-1) ?? null;
  const [table, error] = useLatest<Table>(step === null || exported ? null : paths.table(id, step, "", 0), news);
  if (step === null || exported) return null;
  if (!table) {
    return (
      <aside class="card newest">
        <h2>{say("最新的回答", "Newest answers")}</h2>
        {error ? <p class="muted">{error.message}</p> : <p class="loading">{say("读取中…", "Reading…")}</p>}
      </aside>
    );
  }
  return (
    <aside class="card newest" data-step={table.step}>
      <h2>
        {say("最新的回答", "Newest answers")} <a href={to.step(id, table.step)}>{say(`第 ${table.step} 步`, `step ${table.step}`)}</a>
      </h2>
      <ul>
        {oneEach(table.rollouts).map((line) => (
          <li key={line.row}>
            <a href={to.rollout(id, table.step, line.row)}>
              <span class="newest-question">{line.question}</span>
              <span class="newest-response">{line.response || "∅"}</span>
            </a>
            <span class="muted">{say("得分", "score")} {number(line.score, 3)}</span>
          </li>
        ))}
      </ul>
    </aside>
  );
}

/** The first sample of each prompt. */
function oneEach(lines: readonly RolloutLine[]): RolloutLine[] {
  const seen = new Set<string>();
  return lines.filter(({ group, row }) => !seen.has(group ?? String(row)) && seen.add(group ?? String(row))).slice(0, SHOWN);
}
