/** Keys of a page, pressed outside of any field. */
import { useEffect } from "preact/hooks";

export function useKeys(keys: Record<string, (() => void) | undefined>): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement | null;
      const walked = event.key.length > 1 && target?.matches("[role=img], [role=listbox], .chip"); // these have arrows of their own
      const busy = walked || target?.matches("input, select, textarea");
      const act = keys[event.key];
      if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || busy || !act) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
}

/** `/` goes to the page's search field. */
export const toSearch = (): void => document.querySelector<HTMLInputElement>("main input[type=search]")?.focus();
