/** A field that leads to the run's search. */
import { useState } from "preact/hooks";
import { usePrefs } from "./prefs";
import { go, to } from "./route";

export function SearchBox({ id, text = "" }: { id: string; text?: string }) {
  const { say } = usePrefs();
  const [typed, setTyped] = useState(text);
  return (
    <form
      class="run-search"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        if (typed.trim()) go(to.search(id, { text: typed.trim() }));
      }}
    >
      <input type="search" value={typed} maxLength={200} aria-label={say("搜索所有步的提示和回答", "Search prompts and answers of all steps")}
        placeholder={say("搜索所有步（/）", "Search all steps (/)")} onInput={(event) => setTyped(event.currentTarget.value)} />
    </form>
  );
}
