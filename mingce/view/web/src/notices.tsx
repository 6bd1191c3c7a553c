/** What the reader of a run should know: what happened to it, which files and lines could not be read. */
import { useState } from "preact/hooks";
import { usePrefs } from "./prefs";
import type { Run, RunEvent, Skipped as Lines } from "./types";

const FIRST = 3;
const SILENT = ["checkpoint", "audit"];

export function Notices({ run }: { run: Run }) {
  const { say } = usePrefs();
  const skipped = run.skipped ?? [];
  const told = new Set(skipped.map(({ file }) => file));
  return (
    <>
      {run.message && <p class="card notice">{run.message}</p>}
      {run.damaged.filter(({ file, why }) => !told.has(file) || why.startsWith("only")).map(({ file, why }) => (
        <p key={file} class="card notice" role="alert">
          {say(`文件 ${file} 读不了：${inChinese(why)}。其余照常显示。`, `File ${file} cannot be read: ${why}. The rest is shown as usual.`)}
        </p>
      ))}
      {skipped.map((one) => (
        <p key={one.file} class="card notice small" data-skipped={one.file}>
          <Skipped {...one} />
        </p>
      ))}
      <Happened events={(run.events ?? []).filter(({ kind }) => !SILENT.includes(kind))} />
    </>
  );
}

/** The reasons that the server gives most often; any other stays as it is. */
const REASONS: [RegExp, string][] = [
  [/^it is damaged or cut short.*/, "已损坏或不完整，请用副本恢复或将其删除"],
  [/^it is not a regular file$/, "不是普通文件"],
  [/^Permission denied$/, "没有读取权限"],
  [/^only its first ([\d,]+) MB are read$/, "只读取了前 $1 MB"],
];

function inChinese(why: string): string {
  const known = REASONS.find(([reason]) => reason.test(why));
  return known ? why.replace(...known) : why;
}

function Skipped({ file, count, lines }: Lines) {
  const { say } = usePrefs();
  const [zh, en] = [lines.join("、"), lines.join(", ")];
  if (count === 1) return <>{say(`${file} 的第 ${zh} 行读不了，已跳过；其余照常显示。`, `Line ${en} of ${file} cannot be read and was skipped; the rest is shown as usual.`)}</>;
  const more = count > lines.length;
  return (
    <>
      {say(
        `${file} 有 ${count.toLocaleString("zh-CN")} 行读不了，已跳过（第 ${zh} 行${more ? "等" : ""}）；其余照常显示。`,
        `${count.toLocaleString("en-GB")} lines of ${file} cannot be read and were skipped (lines ${en}${more ? " and more" : ""}); the rest is shown as usual.`,
      )}
    </>
  );
}

/** Events of the run, the newest first. */
function Happened({ events }: { events: RunEvent[] }) {
  const { say } = usePrefs();
  const [all, setAll] = useState(false);
  if (events.length === 0) return null;
  const newest = events.map((event, i) => ({ event, i })).sort((a, b) => b.event.step - a.event.step || b.i - a.i);
  const shown = all ? newest : newest.slice(0, FIRST);
  return (
    <section class="card notice events" aria-label={say("训练中发生的事", "What happened")}>
      <ul>
        {shown.map(({ event, i }) => (
          <li key={i} data-event={event.kind}>
            <b>{title(event.kind, say)}</b> <span class="muted">{say(`第 ${event.step} 步`, `step ${event.step}`)}</span>
            {event.why && <span class="why">{event.why}</span>}
          </li>
        ))}
      </ul>
      {newest.length > FIRST && (
        <button type="button" class="tag" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? say("收起", "Fewer") : say(`其余 ${newest.length - FIRST} 条`, `${newest.length - FIRST} more`)}
        </button>
      )}
    </section>
  );
}

function title(kind: string, say: (zh: string, en: string) => string): string {
  if (kind === "restart") return say("有进程丢失，已从存档重做", "Processes were lost; the run went on from its checkpoint");
  if (kind === "no-learning") return say("没有学习信号", "No learning signal");
  return kind;
}
