/** Ask about the token in front of you. Enter asks, / or ? goes to the box, Escape leaves it. */
import { useEffect, useRef, useState } from "preact/hooks";
import { exported } from "./api";
import type { Dialogue, Round } from "./asking";
import { tokenName } from "./chips";
import { settingsRead } from "./credit";
import { Copied } from "./copied";
import type { Book } from "./facts";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import { Answer } from "./taught";
import type { Level } from "./types";

const LONGEST = 20_000; // as the server takes it

export interface AskPanelProps {
  dialogue: Dialogue;
  book: Book;
  t: number;
  level: Level;
  onSelect: (t: number) => void;
}

export function AskPanel({ dialogue, book, t, level, onSelect }: AskPanelProps) {
  const { say, lang } = usePrefs();
  const [draft, setDraft] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  useFocusKeys(box);
  const { rounds, waiting } = dialogue;
  const ask = (question: string, topic?: string) => {
    if (!question.trim() || waiting) return;
    if (exported) return setDraft(question);
    setDraft("");
    dialogue.ask({ question: question.trim(), token: t, topic }, lang, level);
  };
  const keyed = (event: KeyboardEvent) => {
    if (event.key === "Escape") box.current?.blur();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    ask(draft);
  };
  const round = (one: Round) => (
    <Told round={one} dialogue={dialogue} selected={t} onSelect={onSelect} onChoose={({ topic, title }) => ask(title, topic)} />
  );
  const [newest, ...older] = [...rounds].reverse();
  return (
    <section class="card ask" aria-label={say("问这个 token", "Ask about this token")}>
      <header class="ask-head">
        <h2>
          {say("问这个 token", "Ask about this token")} <span class="ask-token">{tokenName(book.rollout.tokens, t)}</span>{" "}
          <span class="muted">t = {t}</span>
        </h2>
        {rounds.length > 0 && (
          <button type="button" class="tag" data-do="forget" onClick={dialogue.forget}>
            {say("新的对话", "New dialogue")}
          </button>
        )}
      </header>
      <form
        class="ask-form"
        onSubmit={(event) => {
          event.preventDefault();
          ask(draft);
        }}
      >
        <textarea
          ref={box}
          rows={Math.min(8, draft.split("\n").length)}
          maxLength={LONGEST}
          value={draft}
          aria-label={say("问题", "Question")}
          placeholder={say("问题、一句断言，或一段代码……", "A question, a claim, or a piece of code …")}
          onInput={(event) => setDraft(event.currentTarget.value)}
          onKeyDown={keyed}
        />
        {!exported && (
          <button type="submit" class="button" disabled={waiting || !draft.trim()}>
            {waiting ? say("在算……", "Working …") : say("问", "Ask")}
          </button>
        )}
      </form>
      {!newest && (
        <div class="asks" role="group" aria-label={say("可以这样问", "For instance")}>
          {suggestions(book, t, say).map((question) => (
            <button key={question} type="button" class="tag" data-suggested onClick={() => ask(question)}>
              {question}
            </button>
          ))}
        </div>
      )}
      {exported ? (
        <div class="how">
          <p class="muted hint">{say("这个文件背后没有服务器；在存有这次运行的机器上这样问：", "There is no server behind this file; where the run is, ask like this:")}</p>
          <Copied text={dialogue.command(draft.trim() || suggestions(book, t, say)[0], t)} />
        </div>
      ) : (
        !newest && <p class="muted hint keys">{say("按 / 到输入框，Enter 发问，Shift+Enter 换行，Esc 离开。", "/ goes to the box, Enter asks, Shift+Enter is a new line, Esc leaves.")}</p>
      )}
      <div aria-live="polite">{newest && <article class="round">{round(newest)}</article>}</div>
      {older.map((one, i) => (
        <details key={older.length - i} class="round">
          <summary>
            {one.question} <span class="muted">t = {one.token}</span>
          </summary>
          {round(one)}
        </details>
      ))}
    </section>
  );
}

interface ToldProps {
  round: Round;
  dialogue: Dialogue;
  selected: number;
  onSelect: (t: number) => void;
  onChoose: Parameters<typeof Answer>[0]["onChoose"];
}

function Told({ round, dialogue, selected, onSelect, onChoose }: ToldProps) {
  const { say } = usePrefs();
  const { answer, error, question, token } = round;
  return (
    <>
      <p class="asked">
        <span>{question}</span>
        <button type="button" class="plain muted" onClick={() => onSelect(token)}>
          t = {token}
        </button>
      </p>
      {error && (
        <p class="notice" role="alert">
          {error}
        </p>
      )}
      {answer && <Answer {...{ answer, selected, onSelect, onChoose }} />}
      {answer?.action && (
        <div class="how">
          <p class="muted hint">
            {answer.action === "save"
              ? say("网页不写文件。要保存对话，请在终端里问，每一轮都会记下：", "The page writes no file. To keep a dialogue, have it in a terminal, where every round is written down:")
              : say("网页不写文件。要得到图片文件，请在终端里：", "The page writes no file. For a picture file, in a terminal:")}
          </p>
          <Copied text={answer.action === "save" ? dialogue.command(null, token, " --log") : dialogue.command(question.startsWith("/") ? say("画出来", "draw it") : question, token)} />
        </div>
      )}
    </>
  );
}

/** Questions that this token can be asked. */
function suggestions({ columns, settings }: Book, t: number, say: (zh: string, en: string) => string): string[] {
  const advantage = columns.advantages?.[t];
  const asked: string[] = [];
  if (columns.deltas && advantage !== undefined) asked.push(say("为什么优势 A 不直接用 δ？", "Why is A not just δ here?"));
  const lam = settingsRead(settings).some(([symbol, value]) => symbol === "λ" && value !== null);
  if (lam) asked.push(settings.lam === 0.5 ? say("如果 λ = 0.95 呢？", "What if λ = 0.95?") : say("如果 λ = 0.5 呢？", "What if λ = 0.5?"));
  const shown = number(advantage);
  if (/^−?\d+\.\d{2,}$/.test(shown)) asked.push(say(`${shown} 是怎么来的？`, `Where does ${shown} come from?`));
  asked.push(say("A 大于 0 就说明这个 token 是对的，对吗？", "A > 0 means that the token is correct, right?"));
  return asked;
}

/** / and ? go to the box, from anywhere but another box. */
function useFocusKeys(box: { current: HTMLTextAreaElement | null }): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement | null;
      if (event.ctrlKey || event.metaKey || event.altKey || target?.matches("input, select, textarea")) return;
      if ((event.key !== "/" && event.key !== "?") || !box.current) return;
      event.preventDefault();
      box.current.focus();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}
