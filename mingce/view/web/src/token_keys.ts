/** The keys of a response: ← → walk, Home and End go to its ends, Shift marks a range, Esc clears it; in the text also ↑ ↓. */
import { useEffect, useRef } from "preact/hooks";
import type { Range } from "./chips";

export interface RangeKeys {
  range: Range | null;
  onRange: (range: Range | null, selected: number) => void;
}

/** Whether the text moves to the selected token: as the page opens too, only as one walks, or never, for a picture is looked at. */
export type Follow = "always" | "walking" | "never";

export function useTokenKeys(count: number, selected: number | null, onSelect: (t: number) => void, marking?: RangeKeys, follow: Follow = "always"): void {
  const at = useRef(selected); // moves with the key at once: a second key may come before the page has drawn the first
  at.current = selected;
  const anchor = useRef<number | null>(null);
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement | null;
      if (event.altKey || event.ctrlKey || event.metaKey || target?.matches("input, select, textarea")) return;
      const now = at.current ?? -1;
      if (event.key === "Escape" && marking?.range) {
        anchor.current = null;
        return marking.onRange(null, Math.max(now, 0));
      }
      const next = place(event.key, now, count, !!target?.closest(".chips"));
      if (next === null || next < 0 || next >= count) return;
      event.preventDefault();
      at.current = next;
      if (!event.shiftKey || !marking) {
        anchor.current = null;
        return onSelect(next);
      }
      const from = (anchor.current ??= Math.max(now, 0));
      marking.onRange([Math.min(from, next), Math.max(from, next) + 1], next);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  const first = useRef(true);
  useEffect(() => {
    const opened = first.current;
    first.current = false;
    if (selected === null || follow === "never" || (opened && (selected === 0 || follow === "walking"))) return;
    const chip = document.querySelector<HTMLElement>(`.chip[data-t="${selected}"]`);
    const box = chip?.getBoundingClientRect();
    if (!chip || !box) return;
    const top = Math.max(0, ...[...document.querySelectorAll(".bar, .overview")].map((above) => above.getBoundingClientRect().bottom));
    const sheet = matchMedia("(max-width: 1080px)").matches ? document.querySelector(".microscope-side") : null;
    const low = sheet?.getBoundingClientRect().top ?? innerHeight;
    if (box.top < Math.min(top, innerHeight / 2) || box.bottom > Math.min(innerHeight, low)) chip.scrollIntoView({ block: "center" });
  }, [selected]);
}

function place(key: string, now: number, count: number, inText: boolean): number | null {
  const places: Record<string, number> = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: count - 1 };
  if (key in places) return places[key];
  return inText && (key === "ArrowUp" || key === "ArrowDown") ? lineAway(now, key === "ArrowUp" ? -1 : 1) : null;
}

/** The token above or below in the text. */
function lineAway(now: number, way: 1 | -1): number | null {
  const box = (t: number) => document.querySelector<HTMLElement>(`.chip[data-t="${t}"]`)?.getClientRects()[0];
  const here = box(now);
  if (!here) return null;
  let best: { t: number; top: number; far: number } | null = null;
  for (let t = now + way; ; t += way) {
    const there = box(t);
    if (!there) break;
    if (Math.abs(there.top - here.top) < here.height / 2) continue;
    if (best && Math.abs(there.top - best.top) > here.height / 2) break;
    const far = Math.abs(there.left - here.left);
    if (!best || far < best.far) best = { t, top: there.top, far };
  }
  return best?.t ?? null;
}
