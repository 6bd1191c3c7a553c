/** The playground's sheet: what is typed on the left, what comes of it on the right. */
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import type { Line } from "./seeds";
import type { Columns } from "./types";

const RESULTS: [string, string][] = [["rewards", "rₜ"], ["deltas", "δₜ"], ["advantages", "Aₜ"], ["returns", "Rₜ"], ["whitened_advantages", "Âₜ"]];
const INPUTS = ["score", "kl", "value"] as const;

export interface HandTableProps {
  lines: Line[];
  columns: Columns;
  onChange: (lines: Line[]) => void;
  selected: number | null;
  onSelect: (t: number) => void;
}

export function HandTable({ lines, columns, onChange, selected, onSelect }: HandTableProps) {
  const { say } = usePrefs();
  const set = (t: number, change: Partial<Line>) => onChange(lines.map((line, i) => (i === t ? { ...line, ...change } : line)));
  const results = RESULTS.filter(([name]) => columns[name]);
  const typed = (t: number, name: (typeof INPUTS)[number], text: string) => {
    const x = Number(text.replace("−", "-"));
    if (text.trim() !== "" && Number.isFinite(x)) set(t, { [name]: x });
  };
  return (
    <section class="card">
      <div class="table-box">
        <table class="hand">
          <thead>
            <tr>
              <th class="number">t</th>
              <th>token</th>
              <th title={say("策略自己选的 token", "chosen by the policy")}>m</th>
              <th class="number">{say("得分", "score")}</th>
              <th class="number">KL</th>
              <th class="number">V(sₜ)</th>
              {results.map(([name, symbol]) => (
                <th key={name} class="number">
                  <span class="column-name">{name}</span>
                  <span class="muted">{symbol}</span>
                </th>
              ))}
              <th />
            </tr>
          </thead>
          <tbody>
            {lines.map((line, t) => (
              <tr key={t} class={t === selected ? "selected" : undefined} onClick={() => onSelect(t)}>
                <td class="number muted">{t}</td>
                <td>
                  <input class="token-input" value={line.token} aria-label={`token ${t}`} onInput={(event) => set(t, { token: event.currentTarget.value })} />
                </td>
                <td>
                  <input type="checkbox" checked={line.chosen} aria-label={`m ${t}`} onChange={(event) => set(t, { chosen: event.currentTarget.checked })} />
                </td>
                {INPUTS.map((name) => (
                  <td key={name} class="number">
                    <input inputMode="decimal" value={line[name]} aria-label={`${name} ${t}`} onChange={(event) => typed(t, name, event.currentTarget.value)} />
                  </td>
                ))}
                {results.map(([name]) => (
                  <td key={name} class="number" data-column={name}>{number(columns[name][t])}</td>
                ))}
                <td>
                  <button type="button" class="plain" aria-label={say(`删去 ${t}`, `Remove ${t}`)} disabled={lines.length === 1}
                    onClick={(event) => { event.stopPropagation(); onChange(lines.filter((_, i) => i !== t)); }}>
                    ✕
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <button type="button" class="button" onClick={() => onChange([...lines, { token: "…", chosen: true, score: 0, kl: 0, value: 0 }])}>
        {say("加一个 token", "Add a token")}
      </button>
    </section>
  );
}
