/** What stands on the page while its data is on the way, or when it does not come. */
import type { ComponentChildren } from "preact";
import { NotCarried, type Loaded } from "./api";
import { usePrefs } from "./prefs";

export function Await<T>({ of, children }: { of: Loaded<T>; children: (data: T) => ComponentChildren }) {
  const { say } = usePrefs();
  if (of.data !== null) return <>{children(of.data)}</>;
  if (!of.error) return <p class="loading" role="status">{say("读取中…", "Reading…")}</p>;
  const text =
    of.error instanceof NotCarried
      ? say("这个文件里没有这一页；它只带着导出时选的步和回答。", "This file does not hold that page; it carries the steps and rollouts chosen for the export.")
      : of.error.message;
  return (
    <p class="card notice" role="alert">
      {text}
    </p>
  );
}
