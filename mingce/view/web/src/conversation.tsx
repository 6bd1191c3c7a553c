/** A prompt as a conversation: a block a turn, and what the template put between them folded, but counted. */
import { useState } from "preact/hooks";
import { usePrefs } from "./prefs";
import { roleName } from "./roles";
import type { Part } from "./types";

const LONG = 600; // characters of a turn that need not all be seen at once

export function Conversation({ parts }: { parts: readonly Part[] }) {
  const { say } = usePrefs();
  const [open, setOpen] = useState(false);
  const template = parts.filter((part) => part.role === "template");
  const end = parts.length - 1;
  const tail = parts[end]?.role === "template" ? end : -1; // what asks for the answer stands beside the way to unfold it all
  const last = parts.findLastIndex((part) => part.role === "user");
  return (
    <div class="conversation" data-mark="prompt">
      {parts.map((part, i) =>
        part.role === "template" ? (
          i !== tail && ["template", ""].includes(parts[i + 1].role) && <Template key={i} part={part} open={open} />
        ) : part.role === "" ? (
          <p key={i} class="prompt">{part.text}</p>
        ) : (
          <Turn key={i} part={part} before={parts[i - 1]?.role === "template" ? parts[i - 1] : null} {...{ open }} whole={i === last} />
        ),
      )}
      {template.length > 0 && (
        <div class="template-end">
          {tail >= 0 && <Template part={parts[tail]} open={open} />}
          <button type="button" class="plain template-all" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? say("收起模板", "Fold the template") : say(`展开模板（${counted(template, say)}）`, `Show the template (${counted(template, say)})`)}
          </button>
        </div>
      )}
    </div>
  );
}

/** How many tokens the parts have, or characters where tokens are not known. */
function counted(parts: readonly Part[], say: (zh: string, en: string) => string): string {
  const known = parts.every((part) => part.tokens !== null);
  const count = parts.reduce((sum, part) => sum + (part.tokens ?? part.text.length), 0);
  return known ? say(`${count} 个 token`, count === 1 ? "1 token" : `${count} tokens`) : say(`${count} 个字符`, `${count} characters`);
}

function Template({ part, open }: { part: Part; open: boolean }) {
  const { say } = usePrefs();
  const [own, setOwn] = useState(false);
  const shown = own || open;
  return (
    <button type="button" class={shown ? "template open" : "template"} aria-expanded={shown} onClick={() => setOwn(!own)}
      title={say(`模板：${counted([part], say)}`, `Template: ${counted([part], say)}`)}>
      {shown ? part.text.replace(/\n/g, "↵\n") : `⋯ ${part.tokens ?? part.text.length}`}
    </button>
  );
}

interface TurnProps {
  part: Part;
  /** The template's tokens before it. */
  before: Part | null;
  /** All of the template is shown. */
  open: boolean;
  whole: boolean;
}

function Turn({ part, before, open: template, whole }: TurnProps) {
  const { say, lang } = usePrefs();
  const [open, setOpen] = useState(false);
  const short = !whole && !open && part.text.length > LONG;
  return (
    <section class="turn" data-role={part.role}>
      <h3>
        {before && <Template part={before} open={template} />}
        {roleName(part.role, lang)} <span class="muted">{counted([part], say)}</span>
      </h3>
      <p class={short ? "turn-text short" : "turn-text"}>{part.text}</p>
      {!whole && part.text.length > LONG && (
        <button type="button" class="plain" aria-expanded={!short} onClick={() => setOpen(!open)}>
          {short ? say("全文", "All of it") : say("收起", "Less")}
        </button>
      )}
    </section>
  );
}
