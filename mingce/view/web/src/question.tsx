/** What was asked, as much of it as one needs to know which prompt it is; the rest when wanted. */
import { useState } from "preact/hooks";
import { usePrefs } from "./prefs";

const LONG = 420; // characters
const LINES = 6;

export function Question({ text }: { text: string }) {
  const { say } = usePrefs();
  const [open, setOpen] = useState(false);
  const long = text.length > LONG || text.split("\n").length > LINES;
  return (
    <div class="prompt-box">
      <p class={long && !open ? "prompt short" : "prompt"}>{text}</p>
      {long && (
        <button type="button" class="plain link" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? say("收起", "Less") : say("全文", "All of it")}
        </button>
      )}
    </div>
  );
}
