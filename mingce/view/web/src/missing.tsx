/** A column that was not recorded, with the line that would record it. */
import { lacking } from "./derived";
import { usePrefs } from "./prefs";
import type { Rollout } from "./types";

export function Missing({ rollout, name }: { rollout: Rollout; name: string }) {
  const { say, pick } = usePrefs();
  const lines = lacking(rollout, name).flatMap((one) => rollout.missing.filter((known) => known.name === one));
  return (
    <div class="notice missing" role="note" data-missing={name}>
      {lines.map((one) => (
        <p key={one.name}>
          <b>{one.name}</b> {say("没有记录。要记录它：", "was not recorded. To record it: ")}
          {pick(one.line).split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}
        </p>
      ))}
    </div>
  );
}
