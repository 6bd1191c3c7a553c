/** The samples of one prompt side by side: what they have in common is faint, where each parts from one of them is marked. */
import { useMemo, useRef } from "preact/hooks";
import { has, paths, useData } from "../api";
import { useColumn } from "../answer_list";
import { paint } from "../colours";
import { Legend } from "../legend";
import { Await } from "../loading";
import { scaleOf } from "../derived";
import { number } from "../numbers";
import { usePrefs } from "../prefs";
import { Question } from "../question";
import { replace, to } from "../route";
import { useKeys } from "../keys";
import type { Answer, Through } from "../types";

export interface SamplesProps {
  id: string;
  step: number;
  row: number;
  query: URLSearchParams;
}

export function Samples({ id, step, row, query }: SamplesProps) {
  const { say } = usePrefs();
  const data = useData<Through>(paths.samples(id, step, row));
  return (
    <main class="wide">
      <h1>{say("同一个提示的回答", "Samples of one prompt")}</h1>
      <Await of={data}>{(found) => <Side {...{ id, step, row, query, found }} />}</Await>
    </main>
  );
}

function Side({ id, step, row, query, found }: SamplesProps & { found: Through }) {
  const { say } = usePrefs();
  const { answers } = found;
  const [column, setColumn, columns] = useColumn(answers, "advantages");
  const limit = useMemo(() => scaleOf(column, ...answers.map((answer) => answer.columns[column] ?? [])), [answers, column]);
  const asked = Number(query.get("base") ?? NaN);
  const base = Math.max(0, answers.findIndex((answer) => answer.row === (Number.isNaN(asked) ? best(answers) : asked)));
  const choose = (place: number) => {
    if (answers[place]) replace(to.samples(id, step, row, { base: answers[place].row }));
  };
  useKeys({ ArrowLeft: () => choose(base - 1), ArrowRight: () => choose(base + 1) });
  return (
    <>
      <section class="card">
        <Question text={found.question} />
        <div class="chips-head">
          <label>
            {say("与哪条比", "Compared with")}
            <select data-choose="base" value={base} onChange={(event) => choose(Number(event.currentTarget.value))}>
              {answers.map((answer, i) => (
                <option key={answer.row} value={i}>
                  #{answer.row} ({number(answer.score, 2)})
                </option>
              ))}
            </select>
          </label>
          <label>
            {say("按哪一列着色", "Colour by")}
            <select data-choose="column" value={column} onChange={(event) => setColumn(event.currentTarget.value)}>
              {columns.map(([name, symbol]) => (
                <option key={name} value={name}>
                  {symbol} · {name}
                </option>
              ))}
            </select>
          </label>
          <Legend limit={limit} symbol={column} column={column} />
        </div>
        <p class="muted hint">
          {say("淡色的是与所比那条相同的开头，◆ 标出第一处不同；← → 换一条来比。", "What is faint begins as the one it is compared with does, ◆ marks the first difference; ← → choose another to compare with.")}
          {found.left_out > 0 && ` ${say(`还有 ${found.left_out} 条没有列出。`, `${found.left_out} more are not shown.`)}`}
        </p>
      </section>
      <div class="samples">
        {answers.map((answer, i) => (
          <Sample key={answer.row} {...{ id, answer, column, limit }} base={i === base ? null : answers[base]} />
        ))}
      </div>
    </>
  );
}

const best = (answers: readonly Answer[]): number =>
  answers.reduce((found, answer) => ((answer.score ?? -Infinity) > (found.score ?? -Infinity) ? answer : found), answers[0])?.row;

/** Where the tokens of one stop being those of the other. */
export function firstDifference(one: Answer, other: Answer): number {
  const same = one.tokens.findIndex((token, t) => token.id !== other.tokens[t]?.id || token.text !== other.tokens[t]?.text);
  return same < 0 ? one.tokens.length : same;
}

interface SampleProps {
  id: string;
  answer: Answer;
  base: Answer | null;
  column: string;
  limit: number;
}

function Sample({ id, answer, base, column, limit }: SampleProps) {
  const { say, dark } = usePrefs();
  const parts = base ? firstDifference(answer, base) : null;
  const whole = parts === answer.tokens.length && base !== null && base.tokens.length === answer.tokens.length;
  const values = answer.columns[column];
  const mask = answer.columns.response_mask;
  const name = `#${answer.row}`;
  const box = useRef<HTMLElement>(null);
  return (
    <article class={base ? "card sample" : "card sample base"} data-row={answer.row} data-difference={parts ?? undefined} ref={box}>
      <header>
        {has(paths.rollout(id, answer.step, answer.row)) ? <a href={to.rollout(id, answer.step, answer.row, { token: whole ? null : parts })}>{name}</a> : name}
        <b>{number(answer.score, 3)}</b>
        <span class="muted">{say(`${answer.tokens.length} 个 token`, `${answer.tokens.length} tokens`)} · {answer.finish_reason ?? "–"}</span>
        {parts !== null && !whole && (
          <button type="button" class="plain link" title={say("到第一处不同", "To the first difference")}
            onClick={() => box.current?.querySelector(".differs")?.scrollIntoView({ block: "center" })}>
            ◆ t = {parts}
          </button>
        )}
      </header>
      <p class="sample-text">
        {answer.tokens.map((token, t) => (
          <span key={t} class={parts !== null && t < parts ? "same" : t === parts ? "differs" : undefined}
            style={parts !== null && t < parts ? undefined : paint(mask && !mask[t] ? null : (values?.[t] ?? null), limit, dark)}
            title={`${t} · ${number(values?.[t])}`}>
            {token.text}
          </span>
        ))}
        {parts === answer.tokens.length && !whole && <span class="differs">∅</span>}
      </p>
      {whole && <p class="muted">{say("与所比那条完全相同。", "The same as the one it is compared with.")}</p>}
    </article>
  );
}
