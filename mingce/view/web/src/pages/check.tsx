/** Check an explanation: any text about PPO, its sentences marked by what the definitions give. */
import { useState } from "preact/hooks";
import { exported, paths, post } from "../api";
import { Copied } from "../copied";
import { Notation } from "../markdown";
import { usePrefs } from "../prefs";
import type { Checked, Segment } from "../types";

const LONGEST = 1_000_000; // characters, as the server takes them
const EXPLAINED = 2000; // so many mistakes have notes, as in the page to download
const EXAMPLES = {
  zh: "奖励 r = [0, 0, 1]，价值 V = [0.3, 0.4, 0.6]，γ = 1，λ = 0.95。\nTD 误差 δ = [0.1, 0.2, 0.4]。\n优势 A = [0.651, 0.58, 0.5]。\n回报 R = A + V，所以 R_0 = 0.951。\nλ = 0 时 GAE 就是蒙特卡洛。",
  en: "Rewards r = [0, 0, 1], values V = [0.3, 0.4, 0.6], γ = 1, λ = 0.95.\nTD errors δ = [0.1, 0.2, 0.4].\nAdvantages A = [0.651, 0.58, 0.5].\nReturns are R = A + V, so R_0 = 0.951.\nGAE with λ = 0 is Monte Carlo.",
};

export function Check() {
  const { say, lang } = usePrefs();
  const [text, setText] = useState("");
  const [checked, setChecked] = useState<Checked | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [waiting, setWaiting] = useState(false);
  const check = async (whole: string) => {
    setWaiting(true);
    setError(null);
    try {
      setChecked(await post<Checked>(paths.check, { text: whole, lang }));
    } catch (problem) {
      setChecked(null);
      setError((problem as Error).message);
    }
    setWaiting(false);
  };
  const tooLong = text.length > LONGEST;
  return (
    <main>
      <h1>{say("核对一段解释", "Check an explanation")}</h1>
      <p class="lead">
        {say(
          "贴上任何讲 PPO 的文字：书、博客、模型的回答。其中的数和说法会逐句与定义算出的对照；文字只送到这台机器上的 mingce。",
          "Paste any text about PPO: a book's, a blog's, a model's. Its numbers and claims are held, sentence by sentence, against what the definitions give; the text goes to mingce on this machine only.",
        )}
      </p>
      {exported ? (
        <section class="card how">
          <p>{say("这个文件背后没有服务器；把文字存成文件，在终端里核对：", "There is no server behind this file; save the text and check it in a terminal:")}</p>
          <Copied text="mingce check-log FILE --html checked.html" />
        </section>
      ) : (
        <form
          class="card check-form"
          onSubmit={(event) => {
            event.preventDefault();
            void check(text);
          }}
        >
          <textarea rows={10} value={text} aria-label={say("要核对的文字", "The text to check")} onInput={(event) => setText(event.currentTarget.value)} />
          <div class="check-bar">
            <button type="submit" class="button" disabled={waiting || tooLong || !text.trim()}>
              {waiting ? say("在核对……", "Checking …") : say("核对", "Check")}
            </button>
            <button type="button" class="tag" data-do="example" onClick={() => setText(EXAMPLES[lang])}>
              {say("放一个例子", "Put in an example")}
            </button>
            {tooLong && <span class="notice small">{say(`文字有 ${text.length.toLocaleString("zh-CN")} 个字符，最多 ${LONGEST.toLocaleString("zh-CN")} 个。`, `The text has ${text.length.toLocaleString("en-GB")} characters; ${LONGEST.toLocaleString("en-GB")} are the most.`)}</span>}
          </div>
        </form>
      )}
      {error && (
        <p class="card notice" role="alert">
          {error}
        </p>
      )}
      {checked && <Marked checked={checked} />}
    </main>
  );
}

function Marked({ checked }: { checked: Checked }) {
  const { say, lang, pick } = usePrefs();
  const { wrong, right, unverified } = checked.counts;
  const nothing = wrong + right + unverified === 0;
  let explained = 0;
  return (
    <section class="card marked" aria-live="polite">
      <header class="marked-head">
        {nothing ? (
          <span>{say("没有可核对的数。", "No numbers to check.")}</span>
        ) : (
          <>
            <span class="count-mark wrong" data-count="wrong">{say(`${wrong} 句有错`, `${wrong} wrong`)}</span>
            <span class="count-mark right" data-count="right">{say(`${right} 句正确`, `${right} right`)}</span>
            {unverified > 0 && <span class="count-mark" data-count="unverified">{say(`${unverified} 句无法核对`, `${unverified} that cannot be checked`)}</span>}
          </>
        )}
        <button type="button" class="button" data-do="download" onClick={() => download(pick(checked.pages), lang)}>
          {say("下载成一个网页文件", "Download as one HTML file")}
        </button>
      </header>
      <div class="marked-text">
        {checked.segments.map((one, i) => {
          const noted = one.status === "wrong" && explained++ < EXPLAINED;
          return <Part key={i} part={one} noted={noted} />;
        })}
      </div>
    </section>
  );
}

function Part({ part, noted }: { part: Segment; noted: boolean }) {
  if (part.status === "plain") return <>{part.text}</>;
  const text = part.text.trimEnd();
  return (
    <>
      <span class={`part ${part.status}`}>{text}</span>
      {noted && <Notes part={part} />}
      {noted ? part.text.slice(text.length).replace("\n", "") : part.text.slice(text.length)}
    </>
  );
}

/** What is right instead, worked out, and why. */
function Notes({ part }: { part: Segment }) {
  const { say, lang } = usePrefs();
  const which = lang === "zh" ? 0 : 1;
  const lines: [string, string, boolean][] = [
    ...part.right.map((pair): [string, string, boolean] => [say("正确", "right"), pair[which], false]),
    ...part.formulas.map((formula): [string, string, boolean] => [say("算式", "worked"), formula, true]),
    ...part.notes.map((pair): [string, string, boolean] => [say("原因", "why"), pair[which], false]),
  ];
  if (lines.length === 0) return null;
  return (
    <span class="notes" role="note">
      {lines.map(([label, text, formula], i) => (
        <span key={i} class="note">
          <span class="muted">{label}</span> <span>{formula ? <Notation text={text} block /> : text}</span>
        </span>
      ))}
    </span>
  );
}

function download(page: string, lang: string): void {
  const address = URL.createObjectURL(new Blob([page], { type: "text/html;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = `mingce-checked.${lang}.html`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
