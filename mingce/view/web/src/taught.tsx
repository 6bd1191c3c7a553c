/** An answer of the tutor: verdicts on what was claimed, words, formulae, tables, where the code is, what to open next. */
import { Formula } from "./math";
import { Inline, Lines, Markdown, Notation } from "./markdown";
import { usePrefs } from "./prefs";
import type { Choice, Grid, Taught } from "./types";

export interface AnswerProps {
  answer: Taught;
  selected: number;
  onSelect: (t: number) => void;
  onChoose: (choice: Choice) => void;
}

export function Answer({ answer, selected, onSelect, onChoose }: AnswerProps) {
  const { say } = usePrefs();
  return (
    <div class="answer" lang={answer.lang === "zh" ? "zh-CN" : "en"}>
      {answer.title && (
        <h3>
          <Inline text={answer.title} />
        </h3>
      )}
      {answer.judgements.map((one, i) => (
        <p key={i} class={`judged ${one.verdict}`} data-verdict={one.verdict}>
          <b>{one.label}</b> <q>{one.quote}</q> <Inline text={one.reason} />
        </p>
      ))}
      {answer.about && <p class="muted hint about">{answer.about}</p>}
      {answer.text && <Markdown text={answer.text} />}
      {answer.formula && (
        <div class="answer-formula">
          {answer.formula.split("\n").map((line, i) => (
            <Notation key={i} text={line} block />
          ))}
        </div>
      )}
      {answer.lines.length > 0 && (
        <div class="numbers">
          <Lines lines={answer.lines} />
        </div>
      )}
      {answer.tables.map((table, i) => (
        <AnswerTable key={i} table={table} selected={selected} onSelect={onSelect} />
      ))}
      {answer.code.length > 0 && (
        <p class="muted hint code-places">
          {say("代码：", "Code: ")}
          {answer.code.map(({ file, line, name }, i) => (
            <span key={i}>
              {i > 0 && " · "}
              <code>
                {file}:{line}
              </code>{" "}
              {name}
            </span>
          ))}
          {answer.peers && (
            <>
              <br />
              <Inline text={answer.peers} />
            </>
          )}
        </p>
      )}
      {answer.choices.length > 0 && (
        <nav class="asks" aria-label={say("接着看", "Go on with")}>
          {answer.choices.map((choice) => (
            <button key={choice.topic} type="button" class="tag" data-topic={choice.topic} onClick={() => onChoose(choice)}>
              <Inline text={choice.title} />
            </button>
          ))}
        </nav>
      )}
    </div>
  );
}

interface TableProps {
  table: Grid;
  selected: number;
  onSelect: (t: number) => void;
}

/** Where the first column is t, its lines are tokens of the rollout and lead to them. */
function AnswerTable({ table, selected, onSelect }: TableProps) {
  const tokens = table.headings[0] === "t";
  const align = (k: number) => (table.texts.includes(k) ? undefined : "number");
  return (
    <div class="table-box">
      <table>
        <thead>
          <tr>
            {table.headings.map((heading, k) => {
              const [name, symbol] = heading.split("\n");
              return (
                <th key={k} class={align(k)}>
                  <span class="column-name">{symbol ? name : <Heading text={name} />}</span>
                  {symbol && (
                    <span class="muted">
                      <Formula formula={symbol} />
                    </span>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, i) => {
            const t = tokens && /^\d+$/.test(row[0]) ? Number(row[0]) : null;
            return (
              <tr
                key={i}
                class={t === null ? undefined : t === selected ? "link selected" : "link"}
                data-row={t ?? undefined}
                onClick={t === null ? undefined : () => onSelect(t)}
              >
                {row.map((cell, k) => (
                  <td key={k} class={align(k)}>
                    {cell}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** A heading that is a symbol is set as one. */
function Heading({ text }: { text: string }) {
  return /[_^(]/.test(text) && !/[a-z]{2,}|[一-鿿]/.test(text) ? <Formula formula={text} /> : <>{text}</>;
}
