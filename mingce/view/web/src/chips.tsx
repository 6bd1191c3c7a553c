/** A response as chips, one a token, coloured by a column.
 *
 * Long responses are cut into blocks that the browser neither lays out nor paints while they are out of sight, and only
 * the blocks that hold the old and the new selection are rendered again when it moves.
 */
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { paint } from "./colours";
import { memo } from "./memo";
import { number } from "./numbers";
import { usePrefs } from "./prefs";
import type { Num, Token } from "./types";

const BLOCK = 150;

export interface ChipsProps {
  tokens: readonly Token[];
  column: readonly Num[] | null;
  mask: readonly Num[] | null;
  limit: number;
  selected: number | null;
  onSelect: (t: number) => void;
  label: string;
}

export function Chips({ tokens, column, mask, limit, selected, onSelect, label }: ChipsProps) {
  const { dark } = usePrefs();
  const blocks = Math.max(1, Math.ceil(tokens.length / BLOCK));
  return (
    <div class={blocks > 1 ? "chips long" : "chips"} role="listbox" aria-label={label}>
      {Array.from({ length: blocks }, (_, i) => {
        const inside = selected !== null && Math.floor(selected / BLOCK) === i;
        return (
          <Block
            key={i}
            first={i * BLOCK}
            tokens={tokens}
            column={column}
            mask={mask}
            limit={limit}
            dark={dark}
            selected={inside ? selected : null}
            onSelect={onSelect}
          />
        );
      })}
    </div>
  );
}

interface BlockProps extends Omit<ChipsProps, "label"> {
  first: number;
  dark: boolean;
}

/** A block far out of sight keeps its old chips until it comes near: a slider then changes only what one can see. */
const Block = memo(function Block(props: BlockProps) {
  const box = useRef<HTMLDivElement>(null);
  const near = useNear(box);
  const drawn = useRef<{ chips: ComponentChildren; selected: number | null } | null>(null);
  if (near || !drawn.current || props.selected !== drawn.current.selected) {
    drawn.current = { chips: chips(props), selected: props.selected };
  }
  return (
    <div class="chip-block" ref={box}>
      {drawn.current.chips}
    </div>
  );
});

function useNear(box: RefObject<HTMLElement | null>): boolean {
  const [near, setNear] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver(([entry]) => setNear(entry.isIntersecting), {
      root: box.current!.closest(".chips"),
      rootMargin: "300px",
    });
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  return near;
}

function chips({ first, tokens, column, mask, limit, dark, selected, onSelect }: BlockProps): ComponentChildren {
  return (
    <>
      {tokens.slice(first, first + BLOCK).map((token, i) => {
        const t = first + i;
        const chosen = mask === null || !!mask[t];
        const value = chosen && column ? column[t] : null;
        const joined = token.glyph !== undefined && t > 0 && tokens[t - 1].glyph === token.glyph;
        const classes = ["chip", !chosen && "given", t === selected && "selected", joined && "joined"];
        return (
          <button
            key={t}
            type="button"
            role="option"
            aria-selected={t === selected}
            tabIndex={t === (selected ?? 0) ? 0 : -1}
            class={classes.filter(Boolean).join(" ")}
            style={paint(value, limit, dark)}
            data-t={t}
            title={`${t} · ${number(value)}`}
            onClick={() => onSelect(t)}
          >
            {visible(token.text)}
          </button>
        );
      })}
    </>
  );
}

/** White space and empty pieces as something one can see and click. */
export function visible(text: string): string {
  if (text === "") return "∅";
  return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "␣").replace(/^ +$/, (s) => "␣".repeat(s.length));
}
