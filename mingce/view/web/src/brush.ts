/** A click on a row of tokens selects one, a drag a range of them. */
import { useRef } from "preact/hooks";
import type { Range } from "./chips";

const STILL = 4; // pixels that a click may move

export interface Brush {
  onPointerDown: (event: PointerEvent) => void;
  onPointerMove: (event: PointerEvent) => void;
  onPointerUp: (event: PointerEvent) => void;
  onPointerCancel: (event: PointerEvent) => void;
}

/** `at` gives the token under a pointer, the nearest one where `near`, else null. */
export function useBrush(
  at: (event: PointerEvent, near: boolean) => number | null,
  onSelect: (t: number) => void,
  onRange?: (range: Range) => void,
): Brush {
  const begun = useRef<{ x: number; t: number; moved: boolean } | null>(null);
  const end = () => {
    begun.current = null;
  };
  return {
    onPointerDown: (event) => {
      const t = at(event, false);
      if (event.button !== 0 || t === null) return;
      begun.current = { x: event.clientX, t, moved: false };
      if (onRange && event.pointerType === "mouse") (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    },
    onPointerMove: (event) => {
      const from = begun.current;
      if (!from || !onRange) return;
      if (Math.abs(event.clientX - from.x) > STILL) from.moved = true;
      const t = at(event, true);
      if (from.moved && t !== null) onRange([Math.min(from.t, t), Math.max(from.t, t) + 1]);
    },
    onPointerUp: () => {
      if (begun.current && !begun.current.moved) onSelect(begun.current.t);
      end();
    },
    onPointerCancel: end,
  };
}
