/** How the answer to a held-out prompt, and what the critic thought of it, changed over training. */
import { has, paths, useData, useLatest, validationOf } from "./api";
import { AnswerList, useColumn } from "./answer_list";
import { usePrefs } from "./prefs";
import { Question } from "./question";
import { to } from "./route";
import type { Prompts, Run, Through } from "./types";

const MOST = 5; // answers at once

export interface HeldOutProps {
  id: string;
  run: Run;
  news: number;
  /** Which of the prompts. */
  place: number;
  onPlace: (place: number) => void;
}

export function HeldOut({ id, run, news, place, onPlace }: HeldOutProps) {
  const { say } = usePrefs();
  const answers = validationOf(id);
  const there = run.validation_steps.length > 0 && has(paths.prompts(answers));
  const { data, error } = useData<Prompts>(there ? paths.prompts(answers) : null);
  const prompts = data?.prompts ?? [];
  const at = Math.min(Math.max(place, 0), Math.max(prompts.length - 1, 0));
  const one = prompts[at];
  const [through] = useLatest<Through>(one ? paths.through(answers, one.step, one.row) : null, news);
  const [column, setColumn, columns] = useColumn(through?.answers ?? [], "values", "entropy");
  if (!there || error || (data && !one)) return null;
  if (!one || !through) {
    return (
      <section class="card held-out">
        <h2>{say("留出的提示，随训练", "Held-out prompts through training")}</h2>
        <p class="loading">{say("读取中…", "Reading…")}</p>
      </section>
    );
  }
  const last = prompts.length - 1;
  return (
    <section class="card held-out">
      <div class="chips-head">
        <h2>{say("留出的提示，随训练", "Held-out prompts through training")}</h2>
        <div class="held-out-choice">
          <button type="button" class="tag" disabled={at === 0} aria-label={say("上一个提示", "Previous prompt")} onClick={() => onPlace(at - 1)}>←</button>
          <select data-choose="prompt" aria-label={say("提示", "Prompt")} value={at} onChange={(event) => onPlace(Number(event.currentTarget.value))}>
            {prompts.map((prompt, i) => (
              <option key={i} value={i}>
                {i + 1}. {short(prompt.question)}
              </option>
            ))}
          </select>
          <button type="button" class="tag" disabled={at === last} aria-label={say("下一个提示", "Next prompt")} onClick={() => onPlace(at + 1)}>→</button>
        </div>
        {columns.length > 1 && (
          <label>
            {say("按哪一列着色", "Colour by")}
            <select data-choose="held-out-column" value={column} onChange={(event) => setColumn(event.currentTarget.value)}>
              {columns.map(([name, symbol]) => (
                <option key={name} value={name}>
                  {symbol} · {name}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <Question text={through.question} />
      <AnswerList id={answers} answers={through.answers} column={column} selected={null} most={MOST} />
      <p class="muted hint">
        {say("每次验证都用同样的提示和随机种子；点步数看每个 token 的账。", "Every validation uses the same prompts and seeds; a step leads to every token's account.")}{" "}
        <a href={to.through(answers, { step: one.step, row: one.row })}>{say("逐个位置比较", "Compare position by position")}</a>
      </p>
    </section>
  );
}

const short = (text: string): string => (text.length > 60 ? `${text.slice(0, 59)}…` : text).replace(/\s+/g, " ");
