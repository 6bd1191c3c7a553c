/** One token's account: what it is about, each number written out, and what it means in words. */
import { useMemo } from "preact/hooks";
import { tokenName } from "./chips";
import { tokenAccount, type Book } from "./facts";
import { Formula } from "./math";
import { said } from "./numbers";
import { usePrefs } from "./prefs";
import { Prose } from "./prose";
import type { Level, Section } from "./types";

const LEVELS: { level: Level; zh: string; en: string }[] = [
  { level: "child", zh: "给十二岁的人", en: "for a twelve-year-old" },
  { level: "engineer", zh: "给工程师", en: "for an engineer" },
  { level: "proof", zh: "附证明", en: "with proof" },
];

export interface AccountProps {
  book: Book;
  t: number;
  sections: readonly Section[];
  level: Level;
  onLevel: (level: Level) => void;
}

export function Account({ book, t, sections, level, onLevel }: AccountProps) {
  const { say, pick } = usePrefs();
  const { fact, sections: own } = useMemo(() => tokenAccount(book, sections, t), [book, sections, t]);
  const written = (powers: boolean) => (name: string) => {
    const value = fact(name);
    return typeof value === "string" ? value : said(value, powers);
  };
  const [inFormula, inWords] = [written(true), written(level !== "child")];
  const token = book.rollout.tokens[t];
  return (
    <section class="account card" aria-live="polite" aria-label={say("这个 token 的账", "This token's account")}>
      <header class="account-head">
        <h2>
          <span class="account-token">{tokenName(book.rollout.tokens, t)}</span>
          <span class="muted">
            t = {t} · {say("编号", "id")} {token.id}
          </span>
        </h2>
        <div class="switch" role="group" aria-label={say("讲解的深浅", "Level")}>
          {LEVELS.map(({ level: one, zh, en }) => (
            <button key={one} type="button" aria-pressed={one === level} data-level={one} onClick={() => onLevel(one)}>
              {say(zh, en)}
            </button>
          ))}
        </div>
      </header>
      <StateAndAction book={book} t={t} />
      {own.map(([section, its]) => (
        <article key={section.id} class="account-section" data-section={section.id}>
          <h3>{pick(section.title)}</h3>
          {section.formula && <Formula formula={section.formula} block />}
          {section.numbers && (
            <div class="numbers">
              <Formula formula={section.numbers} fill={inFormula} block />
            </div>
          )}
          {section.column && book.account?.disagreeing[section.id]?.includes(t) && (
            <p class="notice" role="note">
              {say(`账本记的是 ${said(book.columns[section.column][t])}，与按定义重算的不同。`, `The ledger has ${said(book.columns[section.column][t])}, which is not what the definition gives.`)}
            </p>
          )}
          <Prose text={pick(section.words[level])} fill={inWords} />
          {section.cases[its] && <Prose text={pick(section.cases[`${its}_${level}`] ?? section.cases[its])} fill={inWords} />}
        </article>
      ))}
    </section>
  );
}

/** The end of the text that is s_t, and the token that is a_t. */
function StateAndAction({ book, t }: { book: Book; t: number }) {
  const { say } = usePrefs();
  const { prompt_tokens, tokens } = book.rollout;
  const mask = book.columns.response_mask;
  const before = [...prompt_tokens, ...tokens.slice(0, t)];
  const end = before.slice(-24).map((token) => token.text).join("").replace(/\n/g, "↵");
  return (
    <p class="state-line">
      <span data-mark="state">
        <mark>
          {before.length > 24 ? "…" : ""}
          {end}
        </mark>
        <small>
          <Formula formula="s_t" /> {say("已知", "known")}
        </small>
      </span>
      <span data-mark="action">
        <mark>{tokenName(tokens, t)}</mark>
        <small>
          {mask && !mask[t] ? say("给定的", "given, not chosen") : <><Formula formula="a_t" /> {say("所选", "chosen")}</>}
        </small>
      </span>
    </p>
  );
}
