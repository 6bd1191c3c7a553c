/** Tokens in their colours, curves under them, the table of all columns, and beside it all the token's account. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { Account } from "./account";
import { Chips } from "./chips";
import { ColumnsTable } from "./columns_table";
import { specOf } from "./credit";
import type { Book } from "./facts";
import { inline } from "./formula";
import { Legend } from "./legend";
import { Formula } from "./math";
import { largest } from "./numbers";
import { usePrefs } from "./prefs";
import { Strip } from "./strip";
import type { Level, Texts } from "./types";

const UNCOLOURED = ["token_ids", "attention_mask", "response_mask", "loss_mask"];

export interface MicroscopeProps {
  book: Book;
  words: Texts;
  column: string;
  selected: number | null;
  level: Level;
  /** Another picture in place of the curves and the table. */
  picture?: ComponentChildren;
  /** What stands between the tokens and the table. */
  below?: ComponentChildren;
  onColumn: (name: string) => void;
  onSelect: (t: number) => void;
  onLevel: (level: Level) => void;
}

export function Microscope({ book, words, column, selected, level, picture, below, onColumn, onSelect, onLevel }: MicroscopeProps) {
  const { say, pick } = usePrefs();
  const { rollout, columns } = book;
  const limit = useMemo(() => largest(columns[column] ?? []), [columns, column]);
  const mask = columns.response_mask ?? null;
  const text = words.columns.find((one) => one.name === column);
  const own = specOf(book.settings.estimator);
  const formula = text && column === "advantages" && own ? own.formula : text && say(text.formula_zh, text.formula);
  const choices = words.columns.filter((one) => one.name in columns && !UNCOLOURED.includes(one.name));
  return (
    <div class="microscope">
      <div class="microscope-main">
        <section class="card">
          <div class="chips-head">
            <label>
              {say("按哪一列着色", "Colour by")}
              <select data-choose="column" value={column} onChange={(event) => onColumn(event.currentTarget.value)}>
                {choices.map((one) => (
                  <option key={one.name} value={one.name}>
                    {inline(one.symbol)} · {one.name}
                  </option>
                ))}
              </select>
            </label>
            <Legend limit={limit} symbol={text?.symbol ?? column} />
          </div>
          {text && (
            <div class="column-meaning">
              {pick(text)} <Formula formula={formula ?? ""} block />
            </div>
          )}
          <p class="prompt" data-mark="prompt">
            {rollout.prompt}
          </p>
          <Chips
            tokens={rollout.tokens}
            column={columns[column] ?? null}
            mask={mask}
            limit={limit}
            selected={selected}
            onSelect={onSelect}
            label={say("回答的 token", "Tokens of the response")}
          />
          <p class="muted hint">
            {say("点一个 token，或用 ← → 走。下划线以内是 sₜ，圈住的是 aₜ。", "Click a token, or walk with ← →. What is underlined is sₜ, the ringed token is aₜ.")}
          </p>
          {!picture && (
            <Strip
              tokens={rollout.tokens}
              columns={columns}
              column={column}
              limit={limit}
              mask={mask}
              after={rollout.bootstrap ?? 0}
              selected={selected}
              onSelect={onSelect}
            />
          )}
        </section>
        {below}
        {picture ?? (
          <section class="card">
            <h2>{say("所有列", "All columns")}</h2>
            <ColumnsTable tokens={rollout.tokens} columns={columns} texts={words.columns} selected={selected} onSelect={onSelect} />
          </section>
        )}
      </div>
      {selected !== null && (
        <Account book={book} t={selected} sections={words.account} level={level} onLevel={onLevel} />
      )}
    </div>
  );
}
