/** One token's account: Python's for what is recorded; for what the sliders make, by the same definitions. */
import { plain } from "./numbers";
import { group_facts, no_group, row_of, section_applies, section_case, token_facts, token_texts } from "./specs.generated";
import type { Columns, Num, Rollout, RowAccount, Section, Settings, Whitening } from "./types";
import { groupOf } from "./whatif";

/** What an account is about: a rollout's columns, as recorded or as recomputed by the sliders. */
export interface Book {
  rollout: Rollout;
  columns: Columns;
  settings: Settings;
  whitening: Whitening | null;
  /** Python's account of the recorded numbers; null where the page has to compute. */
  account: RowAccount | null;
}

export type Fact = Num | string | undefined;

export interface TokenAccount {
  fact: (name: string) => Fact;
  /** The sections that are about this token, each with its case. */
  sections: [Section, string][];
}

const rows = new WeakMap<Book, ReturnType<typeof row_of>>();

function rowOf(book: Book): ReturnType<typeof row_of> {
  let row = rows.get(book);
  if (!row) {
    const { rollout, columns, settings, whitening } = book;
    const known = columns.rewards && !rollout.siblings_left_out;
    const { rewards, mask } = groupOf(rollout, settings.beta ?? 0);
    const group = known ? group_facts([plain(columns.rewards), ...rewards.slice(1)], mask, 0) : no_group();
    row = row_of(columns, settings, rollout.bootstrap, whitening, { ...group, ...rollout.row_inputs });
    rows.set(book, row);
  }
  return row;
}

export function tokenAccount(book: Book, sections: readonly Section[], t: number): TokenAccount {
  const { rollout, account } = book;
  const row = rowOf(book);
  const { tokens } = rollout;
  const texts: Record<string, Fact> = token_texts(
    t, rollout.prompt, tokens.map(({ text }) => text), tokens.map(({ glyph }) => glyph), row.following[t]);
  if (account) {
    const { shared, columns, exceptions, lists, choices, choice, float32 } = account;
    const column = (x: Num | undefined): Fact => (float32 && typeof x === "number" ? Math.fround(x) : x);
    const fact = (name: string): Fact => {
      if (name === "t") return t;
      if (exceptions[name] && t in exceptions[name]) return exceptions[name][t];
      return texts[name] ?? shared[name] ?? column(rollout.columns[columns[name]]?.[t]) ?? lists[name]?.[t] ?? null;
    };
    return { fact, sections: choices[choice[t]].map(([place, own]) => [sections[place], own]) };
  }
  const columns: Columns = { ...book.columns, used: book.columns.whitened_advantages ?? book.columns.advantages };
  const facts: Record<string, Fact> = { ...token_facts(t, columns, row), ...texts };
  return {
    fact: (name) => facts[name] ?? null,
    sections: sections
      .filter((section) => section_applies(section, facts, book.settings))
      .map((section) => [section, section_case(section.case_of, facts, columns, t) ?? ""]),
  };
}
