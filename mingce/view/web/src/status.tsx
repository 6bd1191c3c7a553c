/** Whether a run trains, has finished or was stopped: a word and a mark, not colour alone. */
import { usePrefs } from "./prefs";
import type { Status } from "./types";

const MARKS: Record<Status, [string, string, string]> = {
  training: ["◐", "训练中", "training"],
  finished: ["●", "已完成", "finished"],
  stopped: ["○", "已停止", "stopped"],
};

export function StatusMark({ status }: { status: Status }) {
  const { say } = usePrefs();
  const [mark, zh, en] = MARKS[status] ?? MARKS.stopped;
  return (
    <span class={`status ${status}`}>
      <span aria-hidden="true">{mark}</span> {say(zh, en)}
    </span>
  );
}
