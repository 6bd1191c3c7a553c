/** The little Markdown that answers are written in: paragraphs, lists, bold, formulae and code; all else is text. */
import type { ComponentChildren } from "preact";
import { Formula } from "./math";

const ITEM = /^(?:- |\d+\. )/;
const CODE = /[A-Za-z]{2,}[./-][a-z]{2,}|[a-z]{2,}\[|^\/?[\w-]+\/?$|^\/\w|^mingce |[\\"`]|==|--|\w\*\w/;
const SNAKE = /[a-z]{2,}_[a-z]{2,}/;
const DRAWN = /[─-▟▼]|^\s/;

/** A formula or a piece of code, by what it looks like; s_t, δ and A are names in a formula. */
export function Notation({ text, block = false }: { text: string; block?: boolean }) {
  const name = /^[A-Za-zα-ω]'?(?:_\w|_\{[^}]*\})?$/.test(text);
  const code = DRAWN.test(text) || (!name && (CODE.test(text) || (!block && SNAKE.test(text))));
  if (!code) return <Formula formula={text} block={block} />;
  return block ? <pre class="code-line">{text}</pre> : <code>{text}</code>;
}

/** Lines one below the other; two statements in a line stand beside each other where there is room. */
export function Lines({ lines }: { lines: readonly string[] }) {
  if (lines.some((line) => DRAWN.test(line))) return <pre class="drawn">{lines.join("\n")}</pre>;
  return (
    <>
      {lines.map((line, i) => (
        <div key={i} class="statements">
          {line.split(/[;,]\s{2,}/).map((part, j) => (part ? <Notation key={j} text={part} block /> : <br key={j} />))}
        </div>
      ))}
    </>
  );
}

/** Inside a paragraph. */
export function Inline({ text }: { text: string }) {
  return (
    <>
      {text.split(/(\*\*(?:[^*`]|`[^`]*`)+\*\*|`[^`]+`)/).map((part, i) => {
        if (i % 2 === 0) return part;
        return part.startsWith("**") ? (
          <b key={i}>
            <Inline text={part.slice(2, -2)} />
          </b>
        ) : (
          <Notation key={i} text={part.slice(1, -1)} />
        );
      })}
    </>
  );
}

type Kind = "text" | "item" | "block";

function kindOf(line: string): Kind {
  return ITEM.test(line) ? "item" : /^ {4}/.test(line) ? "block" : "text";
}

/** Lines of one kind that belong together. */
function blocks(text: string): [Kind, string[]][] {
  const found: [Kind, string[]][] = [];
  let apart = true;
  for (const line of text.split("\n")) {
    const kind = kindOf(line);
    const last = found.at(-1);
    if (line.trim() === "") apart = true;
    else if (last?.[0] === kind && (!apart || kind === "item")) {
      last[1].push(line);
      apart = false;
    } else {
      found.push([kind, [line]]);
      apart = false;
    }
  }
  return found;
}

export function Markdown({ text }: { text: string }) {
  return (
    <>
      {blocks(text).map(([kind, lines], i) => (
        <Block key={i} kind={kind} lines={lines} />
      ))}
    </>
  );
}

function Block({ kind, lines }: { kind: Kind; lines: string[] }): ComponentChildren {
  if (kind === "block") {
    const whole = lines.map((line) => line.slice(4));
    return <div class="numbers">{whole.some((line) => DRAWN.test(line)) ? <pre class="drawn">{whole.join("\n")}</pre> : <Lines lines={whole} />}</div>;
  }
  if (kind === "item") {
    const items = lines.map((line) => (
      <li key={line}>
        <Inline text={line.replace(ITEM, "")} />
      </li>
    ));
    return lines[0].startsWith("-") ? <ul class="prose">{items}</ul> : <ol class="prose">{items}</ol>;
  }
  return (
    <p class="prose">
      <Inline text={lines.join("\n")} />
    </p>
  );
}
