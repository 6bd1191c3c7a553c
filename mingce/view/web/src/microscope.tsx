/** The conversation, the response with its tokens in their colours, its curves, the table of all columns; beside it the account. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Account } from "./account";
import { Chips, type Range } from "./chips";
import { ColumnsTable } from "./columns_table";
import { Conversation } from "./conversation";
import { specOf } from "./credit";
import { GAP, lacking, MADE_OF, scaleOf } from "./derived";
import type { Book } from "./facts";
import { inline } from "./formula";
import { Legend } from "./legend";
import { Formula } from "./math";
import { Missing } from "./missing";
import { GapLine } from "./gap_line";
import { Overview } from "./overview";
import { usePrefs } from "./prefs";
import { WithSymbols } from "./prose";
import { RangeAccount } from "./range_account";
import { Strip } from "./strip";
import { TurnsCard } from "./turns_card";
import type { Columns, Level, Texts } from "./types";

const UNCOLOURED = ["token_ids", "attention_mask", "response_mask", "loss_mask"];
const FEW = 24; // tokens whose curves can be seen all at once, each under its own token

export interface MicroscopeProps {
  book: Book;
  words: Texts;
  column: string;
  selected: number | null;
  range: Range | null;
  level: Level;
  /** The conversation before the response too. */
  prompt: boolean;
  /** Another picture in place of the curves and the table. */
  picture?: ComponentChildren;
  /** What stands between the tokens and the table. */
  below?: ComponentChildren;
  onColumn: (name: string) => void;
  onSelect: (t: number) => void;
  onRange: (range: Range | null) => void;
  onLevel: (level: Level) => void;
}

export function Microscope(props: MicroscopeProps) {
  const { book, words, column, selected, range, level, prompt, picture, below, onSelect, onRange, onLevel } = props;
  const { say } = usePrefs();
  const [sheet, setSheet] = useState(false); // on a narrow screen the account lies over the page's lower end
  const { rollout, columns } = book;
  const limit = useMemo(() => scaleOf(column, columns[column] ?? []), [columns, column]);
  const mask = columns.response_mask ?? null;
  const shared = { tokens: rollout.tokens, mask, limit, selected, onSelect };
  const long = rollout.tokens.length > FEW;
  return (
    <div class="microscope">
      <div class="microscope-main">
        {prompt && (
          <section class="card">
            <Conversation parts={rollout.conversation} />
          </section>
        )}
        {long && picture && (
          <>
            <section class="card"><Overview {...{ ...shared, columns, column, range, onRange }} /></section>
            {picture}
          </>
        )}
        <section class="card">
          <Colouring {...props} limit={limit} />
          {(long || column === GAP) && !picture && <Overview {...{ ...shared, columns, column, range, onRange }} />}
          <Chips {...shared} column={columns[column] ?? null} observations={rollout.observations} turns={columns.turn ?? null} range={range} onRange={onRange}
            label={say("回答的 token", "Tokens of the response")} />
          <p class="muted hint">
            {say(
              "点一个 token，或用 ← → 走（在文字里也可用 ↑ ↓）；拖选文字、曲线，或按 Shift+← →，看一段。提示和下划线以内是 sₜ，圈住的是 aₜ。",
              "Click a token, or walk with ← → (in the text also ↑ ↓); drag over text or curves, or hold Shift, for a range. The prompt and what is underlined are sₜ, the ringed token is aₜ.",
            )}
          </p>
          {!picture && <Strip {...part(book, long ? range : null)} {...{ column, limit, onRange: long ? null : onRange, onSelect }} selected={inPart(selected, long ? range : null)} />}
        </section>
        <TurnsCard {...{ book, selected, onSelect }} />
        {below}
        {picture ? !long && picture : (
          <section class="card">
            <h2>{say("所有列", "All columns")}</h2>
            <ColumnsTable tokens={rollout.tokens} columns={columns} texts={words.columns} formula={specOf(book.settings.estimator)?.formula}
              selected={selected} onSelect={onSelect} />
          </section>
        )}
      </div>
      {selected !== null && (
        <div class={sheet ? "microscope-side open" : "microscope-side"}>
          <button type="button" class="sheet-handle" aria-expanded={sheet} onClick={() => setSheet(!sheet)}>
            {sheet ? say("▾ 收起账", "▾ Less") : say("▴ 展开账", "▴ All of the account")}
          </button>
          {range && <RangeAccount {...{ book, range, onSelect }} texts={words.columns} onClear={() => onRange(null)} />}
          <Account book={book} t={selected} sections={words.account} level={level} onLevel={onLevel} />
        </div>
      )}
    </div>
  );
}

/** Which column colours the tokens, what it means, or how it could be recorded. */
function Colouring({ book, words, column, limit, onColumn, onSelect }: MicroscopeProps & { limit: number }) {
  const { say, pick } = usePrefs();
  const { rollout, columns } = book;
  const text = words.columns.find((one) => one.name === column);
  const own = specOf(book.settings.estimator);
  const formula = text && column === "advantages" && own ? own.formula : text && say(text.formula_zh, text.formula);
  const choices = words.columns.filter((one) => one.name in columns && !UNCOLOURED.includes(one.name));
  const missing = words.columns.filter(({ name }) => lacks(rollout, name));
  const option = ({ name, symbol }: { name: string; symbol: string }) => (
    <option key={name} value={name}>
      {inline(symbol)} · {name}
    </option>
  );
  return (
    <>
      <div class="chips-head">
        <label>
          {say("按哪一列着色", "Colour by")}
          <select data-choose="column" value={column} onChange={(event) => onColumn(event.currentTarget.value)}>
            {choices.map(option)}
            {missing.length > 0 && <optgroup label={say("没有记录", "Not recorded")}>{missing.map(option)}</optgroup>}
          </select>
        </label>
        {column in columns && <Legend limit={limit} symbol={text?.symbol ?? column} column={column} />}
      </div>
      {text && (
        <div class="column-meaning">
          <WithSymbols text={pick(text)} /> <Formula formula={formula ?? ""} block />
        </div>
      )}
      {column === GAP && column in columns && <GapLine {...{ columns, onSelect }} />}
      {!(column in columns) && <Missing rollout={rollout} name={column} />}
    </>
  );
}

/** Whether a column was not recorded that could have been, or is made of one. */
export function lacks(rollout: Book["rollout"], name: string): boolean {
  const known = (one: string) => rollout.missing.some((missing) => missing.name === one);
  return name in MADE_OF ? lacking(rollout, name).some(known) : known(name);
}

/** What the curves are drawn of: a range, or all of it. After its end comes the next state's value. */
function part({ rollout, columns }: Book, range: Range | null) {
  const [first, last] = range ?? [0, rollout.tokens.length];
  if (!range) return { tokens: rollout.tokens, columns, mask: columns.response_mask ?? null, after: rollout.bootstrap ?? 0 };
  const cut: Columns = Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values.slice(first, last)]));
  const after = last < rollout.tokens.length ? (columns.values?.[last] ?? 0) : rollout.bootstrap;
  return { tokens: rollout.tokens.slice(first, last), columns: cut, mask: cut.response_mask ?? null, after, first };
}

const inPart = (t: number | null, range: Range | null): number | null =>
  t === null || !range ? t : t >= range[0] && t < range[1] ? t - range[0] : null;
