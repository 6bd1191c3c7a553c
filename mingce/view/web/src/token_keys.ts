/** ← and → walk over the tokens, Home and End go to the first and the last. */
import { useEffect, useRef } from "preact/hooks";

export function useTokenKeys(count: number, selected: number | null, onSelect: (t: number) => void): void {
  const at = useRef(selected); // moves with the key at once: a second key may come before the page has drawn the first
  at.current = selected;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement | null;
      if (event.altKey || event.ctrlKey || event.metaKey || target?.matches("input, select, textarea")) return;
      const now = at.current ?? -1;
      const places: Record<string, number> = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: count - 1 };
      const next = places[event.key];
      if (next === undefined || next < 0 || next >= count) return;
      event.preventDefault();
      at.current = next;
      onSelect(next);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  useEffect(() => {
    const chip = document.querySelector<HTMLElement>(`.chip[data-t="${selected}"]`);
    if (document.activeElement?.classList.contains("chip")) chip?.focus({ preventScroll: true });
    const box = chip?.closest(".chips");
    if (!chip || !box) return;
    const [inner, outer] = [chip.getBoundingClientRect(), box.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom) box.scrollTop += inner.top - outer.top - outer.height / 3;
  }, [selected]);
}
