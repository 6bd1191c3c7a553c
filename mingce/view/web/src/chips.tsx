/** A response as the text it is, every token in the colour of a column; what the policy did not choose stands apart.
 *
 * Tokens add nothing to the layout of the text, so only the stretches near the window are cut into tokens, the others are
 * plain text of the same size; and when the selection moves only the stretches it leaves and enters are rendered again.
 */
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { paint } from "./colours";
import { memo } from "./memo";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import { roleName } from "./roles";
import type { Num, Observation, Token } from "./types";

const BLOCK = 100;
const AT_ONCE = 400; // tokens that are cut out before anything is known of the window
const INLINE = 3; // tokens of an observation that may stay in the line

/** From the first token to before the last. */
export type Range = readonly [number, number];

export interface ChipsProps {
  tokens: readonly Token[];
  column: readonly Num[] | null;
  mask: readonly Num[] | null;
  limit: number;
  selected: number | null;
  onSelect: (t: number) => void;
  label: string;
  observations?: readonly Observation[];
  /** Which turn of a conversation each token belongs to. */
  turns?: readonly Num[] | null;
  range?: Range | null;
  /** Told what was marked with the pointer. */
  onRange?: (range: Range) => void;
}

export function Chips({ tokens, column, mask, limit, selected, onSelect, label, observations, turns = null, range = null, onRange }: ChipsProps) {
  const { say, lang, dark } = usePrefs();
  const stretches = useMemo(() => stretchesOf(tokens, observations ?? []), [tokens, observations]);
  const id = useMemo(() => `t${Math.random().toString(36).slice(2, 8)}`, []);
  const click = (event: MouseEvent) => {
    const marked = onRange && markedRange(event.currentTarget as HTMLElement);
    const t = tokenAt(event.target);
    if (marked) onRange(marked);
    else if (t !== null) onSelect(t);
  };
  const hover = (event: MouseEvent) => {
    const t = tokenAt(event.target);
    if (t !== null) (event.target as HTMLElement).title = `${t} · ${number(mask === null || mask[t] ? column?.[t] : null)}`;
  };
  const blocks = ([first, last]: Range) =>
    Array.from({ length: Math.ceil((last - first) / BLOCK) }, (_, i) => {
      const [from, to] = [first + i * BLOCK, Math.min(last, first + (i + 1) * BLOCK)];
      const inside = selected !== null && selected >= from && selected < to;
      const [low, high] = range ?? [0, 0];
      return (
        <Block key={from} {...{ id, from, to, tokens, column, mask, limit, dark }}
          known={selected !== null && to <= selected} selected={inside ? selected : null}
          low={clamp(low, from, to)} high={clamp(high, from, to)} />
      );
    });
  return (
    <div class="chips" role="listbox" tabIndex={0} aria-label={label} onClick={click} onMouseOver={hover}
      aria-activedescendant={selected === null ? undefined : `${id}-${selected}`}>
      {stretches.map(({ span, observation }, i) =>
        !observation && turns ? (
          <div key={span[0]} class="said" role="group" data-turn={turns[span[0]]}>
            <small>
              {say(`第 ${(turns[span[0]] ?? 0) + 1} 轮`, `turn ${(turns[span[0]] ?? 0) + 1}`)} · {tokenCount(span, say)}
              {stretches[i + 1]?.observation?.role === "tool" && say(" · 调用工具", " · calls a tool")}
            </small>
            {blocks(span)}
          </div>
        ) : observation ? (
          <div key={span[0]} class="observation" role="group" data-observation={observation.role}>
            <small>{roleName(observation.role || "observation", lang)} · {tokenCount(span, say)}</small>
            {blocks(span)}
          </div>
        ) : (
          blocks(span)
        ),
      )}
    </div>
  );
}

const clamp = (x: number, low: number, high: number): number => Math.min(Math.max(x, low), high);

interface Stretch {
  span: Range;
  /** Null for what the policy said, and for a token or two given to it. */
  observation: Observation | null;
}

function stretchesOf(tokens: readonly Token[], observations: readonly Observation[]): Stretch[] {
  const found: Stretch[] = [];
  let at = 0;
  for (const one of observations) {
    const text = tokens.slice(one.start, one.end).map((token) => token.text).join("");
    if (one.end - one.start <= INLINE && !text.includes("\n")) continue;
    if (one.start > at) found.push({ span: [at, one.start], observation: null });
    found.push({ span: [one.start, one.end], observation: one });
    at = one.end;
  }
  if (at < tokens.length || !found.length) found.push({ span: [at, tokens.length], observation: null });
  return found;
}

function tokenAt(place: EventTarget | Node | null): number | null {
  const element = place instanceof Element ? place : (place as Node | null)?.parentElement;
  const t = element?.closest<HTMLElement>(".chip")?.dataset.t;
  return t === undefined ? null : Number(t);
}

/** The tokens under the text that is marked with the pointer; null where nothing is. */
function markedRange(box: HTMLElement): Range | null {
  const marked = getSelection();
  if (!marked || marked.isCollapsed || !box.contains(marked.anchorNode) || !box.contains(marked.focusNode)) return null;
  const [a, b] = [tokenAt(marked.anchorNode), tokenAt(marked.focusNode)];
  return a === null || b === null || a === b ? null : [Math.min(a, b), Math.max(a, b) + 1];
}

interface BlockProps {
  id: string;
  from: number;
  to: number;
  tokens: readonly Token[];
  column: readonly Num[] | null;
  mask: readonly Num[] | null;
  limit: number;
  dark: boolean;
  /** All of it comes before the selected token. */
  known: boolean;
  selected: number | null;
  low: number;
  high: number;
}

const Block = memo(function Block(props: BlockProps) {
  const box = useRef<HTMLSpanElement>(null);
  const near = useNear(box, props.from < AT_ONCE) || props.selected !== null;
  return (
    <span class={props.known ? "chip-block known" : "chip-block"} ref={box}>
      {near ? chips(props) : props.tokens.slice(props.from, props.to).map((token) => readable(token.text)).join("")}
    </span>
  );
});

function useNear(box: RefObject<HTMLElement | null>, first: boolean): boolean {
  const [near, setNear] = useState(first);
  useEffect(() => {
    const watch = new IntersectionObserver(([entry]) => setNear(entry.isIntersecting), { rootMargin: "800px" });
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  return near;
}

function chips({ id, from, to, tokens, column, mask, limit, dark, selected, low, high }: BlockProps): ComponentChildren {
  return tokens.slice(from, to).map((token, i) => {
    const t = from + i;
    const chosen = mask === null || !!mask[t];
    const classes = ["chip", !chosen && "given", t === selected && "selected", selected !== null && t < selected && "known",
      t >= low && t < high && "ranged", token.text === "" && "piece", token.special && "special"];
    return (
      <span key={t} id={`${id}-${t}`} role="option" aria-selected={t === selected} class={classes.filter(Boolean).join(" ")}
        style={paint(chosen && column ? column[t] : null, limit, dark)} data-t={t}>
        {readable(token.text)}
      </span>
    );
  });
}

const tokenCount = ([from, to]: Range, say: (zh: string, en: string) => string): string =>
  say(`${to - from} 个 token`, to - from === 1 ? "1 token" : `${to - from} tokens`);

/** A token in the text: the end of a line is a mark one can click, and ends it. */
const readable = (text: string): string => text.replace(/\n/g, "↵\n").replace(/\t/g, "⇥\t");

/** A token where it stands alone; of a character that several tokens make, which of them it is: 弹 2/3. */
export function tokenName(tokens: readonly Token[], t: number): string {
  const { text, glyph } = tokens[t];
  let [first, last] = [t, t + 1];
  while (first > 0 && tokens[first - 1].glyph === glyph) first--;
  while (last < tokens.length && tokens[last].glyph === glyph) last++;
  return last - first > 1 ? `${visible(tokens[first].text)} ${t - first + 1}/${last - first}` : visible(text);
}

/** White space and empty texts as something one can see. */
export function visible(text: string): string {
  if (text === "") return "∅";
  return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "␣").replace(/^ +$/, (s) => "␣".repeat(s.length));
}
