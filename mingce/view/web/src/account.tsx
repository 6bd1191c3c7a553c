/** One token's account: what it is about, each number written out, and what it means in words. */
import { useMemo } from "preact/hooks";
import { visible } from "./chips";
import { asText, caseOf, facts, sectionsFor, type Book } from "./facts";
import { Formula } from "./math";
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
  const found = useMemo(() => facts(book, t), [book, t]);
  const fill = (name: string) => asText(found[name]);
  const token = book.rollout.tokens[t];
  return (
    <section class="account card" aria-live="polite" aria-label={say("这个 token 的账", "This token's account")}>
      <header class="account-head">
        <h2>
          <span class="account-token">{visible(token.text)}</span>
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
      {sectionsFor(sections, book, found, t).map((section) => {
        const own = section.cases?.[caseOf(section, found, book.columns, t) ?? ""];
        return (
          <article key={section.id} class="account-section" data-section={section.id}>
            <h3>{pick(section.title)}</h3>
            {section.formula && <Formula formula={section.formula} block />}
            {section.numbers && (
              <div class="numbers">
                <Formula formula={section.numbers} fill={fill} block />
              </div>
            )}
            <Prose text={pick(section.words[level])} fill={fill} />
            {own && <Prose text={pick(own)} fill={fill} />}
          </article>
        );
      })}
    </section>
  );
}

/** The end of the text that is s_t, and the token that is a_t. */
function StateAndAction({ book, t }: { book: Book; t: number }) {
  const { say } = usePrefs();
  const { prompt_tokens, tokens } = book.rollout;
  const before = [...prompt_tokens, ...tokens.slice(0, t)];
  const end = before.slice(-24).map((token) => token.text).join("");
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
        <mark>{visible(tokens[t].text)}</mark>
        <small>
          <Formula formula="a_t" /> {say("所选", "chosen")}
        </small>
      </span>
    </p>
  );
}
