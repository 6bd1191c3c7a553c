/** A marked range of a response: its text, and each column's numbers over it. */
import { tokenName, type Range } from "./chips";
import type { Book } from "./facts";
import { inline } from "./formula";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import type { ColumnText, Num } from "./types";

const SUMMED = ["scores", "kl", "rewards", "deltas", "policy_loss"];
const SHOWN = [...SUMMED, "values", "returns", "advantages", "whitened_advantages", "entropy", "ratio", "log_prob_gap"];
const EXCERPT = 400;

export interface RangeAccountProps {
  book: Book;
  range: Range;
  texts: readonly ColumnText[];
  onSelect: (t: number) => void;
  onClear: () => void;
}

export function RangeAccount({ book, range: [first, last], texts, onSelect, onClear }: RangeAccountProps) {
  const { say } = usePrefs();
  const { rollout, columns } = book;
  const mask = columns.response_mask ?? null;
  const slots = Array.from({ length: last - first }, (_, i) => first + i).filter((t) => mask === null || mask[t]);
  const text = rollout.tokens.slice(first, last).map((token) => token.text).join("").trim();
  const place = (t: number, value: Num) => (
    <button type="button" class="plain" title={`t = ${t} ${tokenName(rollout.tokens, t)}`} onClick={() => onSelect(t)}>
      {number(value)} <small class="muted">{t}</small>
    </button>
  );
  const lines = texts.flatMap(({ name, symbol }) => {
    const known = SHOWN.includes(name) && columns[name] ? slots.filter((t) => columns[name][t] !== null) : [];
    if (!known.length) return [];
    const value = (t: number) => columns[name][t]!;
    const sum = known.reduce((total, t) => total + value(t), 0);
    const least = known.reduce((a, b) => (value(b) < value(a) ? b : a));
    const most = known.reduce((a, b) => (value(b) > value(a) ? b : a));
    return [{ name, symbol, sum: SUMMED.includes(name) ? sum : null, mean: sum / known.length, least, most }];
  });
  return (
    <section class="card range-account" aria-live="polite" aria-label={say("这一段的账", "This range's account")}>
      <header class="account-head">
        <h2>
          t = {first}…{last - 1}
          <span class="muted">{say(`${slots.length} 个所选 token`, `${slots.length} chosen tokens`)}</span>
        </h2>
        <button type="button" class="tag" onClick={onClear}>✕</button>
      </header>
      <p class="range-text">
        {text.slice(0, EXCERPT)}
        {text.length > EXCERPT && "…"}
      </p>
      <div class="table-box">
        <table>
          <thead>
            <tr>
              <th />
              <th class="number">Σ</th>
              <th class="number">{say("均值", "mean")}</th>
              <th class="number">{say("最小", "least")}</th>
              <th class="number">{say("最大", "most")}</th>
            </tr>
          </thead>
          <tbody>
            {lines.map(({ name, symbol, sum, mean, least, most }) => (
              <tr key={name} data-range={name}>
                <th title={name}>{inline(symbol)}</th>
                <td class="number">{sum === null ? "" : number(sum)}</td>
                <td class="number">{number(mean)}</td>
                <td class="number">{place(least, columns[name][least])}</td>
                <td class="number">{place(most, columns[name][most])}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
