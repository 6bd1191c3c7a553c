/** Every column of a rollout, a line a token. */
import { tokenName } from "./chips";
import { paint } from "./colours";
import { inline } from "./formula";
import { scaleOf } from "./derived";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import type { ColumnText, Columns, Token } from "./types";
import { Windowed } from "./windowed";

export const SIGNED = ["kl", "scores", "rewards", "deltas", "advantages", "whitened_advantages", "policy_loss", "log_prob_gap"];
const FLAGS = ["response_mask", "attention_mask", "loss_mask", "clipped", "dual_clipped", "value_clipped"];

export interface ColumnsTableProps {
  tokens: readonly Token[];
  columns: Columns;
  texts: readonly ColumnText[];
  /** The formula of the estimator that made the advantages. */
  formula?: string;
  selected: number | null;
  onSelect: (t: number) => void;
}

export function ColumnsTable({ tokens, columns, texts, formula, selected, onSelect }: ColumnsTableProps) {
  const { say, pick, dark } = usePrefs();
  const there = texts.filter((text) => text.name in columns && text.name !== "token_ids");
  const flag = (text: ColumnText) => FLAGS.includes(text.name);
  const shown = [...there.filter((text) => !flag(text)), ...there.filter(flag)];
  const limits = new Map(shown.map(({ name }) => [name, SIGNED.includes(name) ? scaleOf(name, columns[name]) : 0]));
  const cell = (name: string, t: number) => {
    const value = columns[name][t];
    if (FLAGS.includes(name)) return <td class="number flag">{value === null ? "–" : value ? "●" : "·"}</td>;
    const limit = limits.get(name)!;
    return (
      <td class="number" data-column={name} style={limit > 0 ? paint(value, limit, dark) : undefined}>
        {number(value)}
      </td>
    );
  };
  return (
    <Windowed
      count={tokens.length}
      show={selected}
      label={say("所有列", "All columns")}
      head={
        <tr>
          <th class="number">t</th>
          <th class="stuck">token</th>
          {shown.map((text) => (
            <th key={text.name} class="number" title={`${(text.name === "advantages" && formula) || say(text.formula_zh, text.formula)}\n${pick(text)}`}>
              <span class="column-name">{text.name}</span>
              <span class="muted">{inline(text.symbol)}</span>
            </th>
          ))}
        </tr>
      }
      row={(t) => (
        <tr key={t} class={t === selected ? "selected" : undefined} onClick={() => onSelect(t)}>
          <td class="number muted">{t}</td>
          <td class="stuck token">{tokenName(tokens, t)}</td>
          {shown.map((text) => cell(text.name, t))}
        </tr>
      )}
    />
  );
}
