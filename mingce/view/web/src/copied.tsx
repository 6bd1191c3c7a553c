/** A command to copy. */
import { useState } from "preact/hooks";
import { usePrefs } from "./prefs";

export function Copied({ text }: { text: string }) {
  const { say } = usePrefs();
  const [done, setDone] = useState("");
  const copy = () => void navigator.clipboard?.writeText(text).then(() => setDone(text), () => undefined);
  return (
    <div class="copied">
      <code data-command>{text}</code>
      <button type="button" class="tag" onClick={copy}>
        {done === text ? say("已复制", "Copied") : say("复制", "Copy")}
      </button>
    </div>
  );
}
