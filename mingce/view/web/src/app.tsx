/** The frame: where one is, the language, light or dark, and the page that the address names. */
import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { exported, hasUnder, paths, runOf, useData } from "./api";
import { firstLang, firstTheme, PrefsContext, remember, type Theme } from "./prefs";
import { Audit } from "./pages/audit";
import { Check } from "./pages/check";
import { Playground } from "./pages/playground";
import { Rollout } from "./pages/rollout";
import { Run } from "./pages/run";
import { Runs } from "./pages/runs";
import { Samples } from "./pages/samples";
import { Search } from "./pages/search";
import { Step } from "./pages/step";
import { Through } from "./pages/through";
import { Worst } from "./pages/worst";
import { to, useRoute, type Route } from "./route";
import type { Lang, RunSummary } from "./types";

const THEMES: Record<Theme, { next: Theme; mark: string; zh: string; en: string }> = {
  auto: { next: "light", mark: "◑", zh: "随系统", en: "as the system" },
  light: { next: "dark", mark: "☀", zh: "亮色", en: "light" },
  dark: { next: "auto", mark: "☾", zh: "暗色", en: "dark" },
};

function useDark(theme: Theme): boolean {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [system, setSystem] = useState(query.matches);
  useEffect(() => {
    const changed = () => setSystem(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, [query]);
  return theme === "auto" ? system : theme === "dark";
}

/** Tells the style sheet how much of the window the bar covers. */
function useBarHeight(): RefObject<HTMLElement | null> {
  const bar = useRef<HTMLElement>(null);
  useEffect(() => {
    const tell = () => document.documentElement.style.setProperty("--bar", `${bar.current!.offsetHeight}px`);
    const observer = new ResizeObserver(tell);
    observer.observe(bar.current!);
    return () => observer.disconnect();
  }, []);
  return bar;
}

export function App() {
  const [lang, setLang] = useState<Lang>(firstLang);
  const [theme, setTheme] = useState<Theme>(firstTheme);
  const dark = useDark(theme);
  const route = useRoute();
  const bar = useBarHeight();
  const prefs = useMemo(() => ({ lang, dark }), [lang, dark]);
  // at once, not in an effect: canvases read their colours from the style sheet while they render
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.documentElement.lang = lang === "zh" ? "zh-CN" : "en";

  const say = (zh: string, en: string) => (lang === "zh" ? zh : en);
  const change = (next: Lang) => {
    setLang(next);
    remember("lang", next);
  };
  const { mark, next, zh, en } = THEMES[theme];
  return (
    <PrefsContext.Provider value={prefs}>
      <header class="bar" ref={bar}>
        <a class="home" href={to.runs()}>
          mingce <span lang="zh-CN">明策</span>
        </a>
        <Trail route={route} say={say} />
        <div class="bar-end">
          <nav class={route.parts[0] === "run" ? "elsewhere within" : "elsewhere"} aria-label={say("别处", "Elsewhere")}>
            <a href={to.check()} aria-current={route.parts[0] === "check" ? "page" : undefined}>
              {say("核对解释", "Check a text")}
            </a>
            <a href={to.playground()} aria-current={route.parts[0] === "playground" ? "page" : undefined}>
              {say("练习场", "Playground")}
            </a>
          </nav>
          <div class="switch" role="group" aria-label={say("语言", "Language")}>
            <button type="button" aria-pressed={lang === "zh"} data-lang="zh" lang="zh-CN" onClick={() => change("zh")}>
              中文
            </button>
            <button type="button" aria-pressed={lang === "en"} data-lang="en" lang="en" onClick={() => change("en")}>
              English
            </button>
          </div>
          <button
            type="button"
            class="theme"
            data-theme-now={theme}
            title={say(zh, en)}
            aria-label={say(`配色：${zh}`, `Colours: ${en}`)}
            onClick={() => {
              setTheme(next);
              remember("theme", next);
            }}
          >
            {mark}
          </button>
        </div>
      </header>
      <Page route={route} />
      {exported && <footer class="muted">{say("由 mingce view --export 写成的单个文件；不向外发送任何请求。", "One file, written by mingce view --export; it asks nothing of any network.")}</footer>}
    </PrefsContext.Provider>
  );
}

function Page({ route }: { route: Route }) {
  const { parts, query } = route;
  useEffect(() => scrollTo(0, 0), [parts.join("/")]);
  if (parts[0] === "playground") return <Playground />;
  if (parts[0] === "check") return <Check />;
  if (parts[0] !== "run" || !parts[1]) return <Runs query={query} />;
  const [, id, page, step, rollout, row] = parts;
  if (page === "through") return <Through id={id} query={query} />;
  if (page === "audit") return <Audit id={id} query={query} />;
  if (page === "search") return <Search id={id} query={query} />;
  if (page === "worst") return <Worst key="run" id={id} step={null} query={query} />;
  if (page === "step" && rollout === "worst") return <Worst key={step} id={id} step={Number(step)} query={query} />;
  if (page === "step" && rollout === "samples") return <Samples id={id} step={Number(step)} row={Number(row)} query={query} />;
  if (page === "step" && rollout === "rollout") return <Rollout id={id} step={Number(step)} row={Number(row)} query={query} />;
  if (page === "step") return <Step key={step} id={id} step={Number(step)} query={query} />;
  return <Run id={id} query={query} />;
}

/** Runs › run › step › rollout, and the run's other pages. */
function Trail({ route, say }: { route: Route; say: (zh: string, en: string) => string }) {
  const runs = useData<RunSummary[]>(paths.runs);
  const [kind, id, page, step, , row] = route.parts;
  if (kind !== "run" || !id) return <nav class="trail" />;
  const own = runOf(id);
  const name = runs.data?.find((run) => run.id === own)?.name ?? own;
  const here = (what: boolean) => (what ? ("page" as const) : undefined);
  return (
    <nav class="trail" aria-label={say("位置", "Place")}>
      <a href={to.run(own)} aria-current={here(!page)}>{name}</a>
      {own !== id && <a href={to.through(id)} aria-current={here(page === "through" && !route.query.has("row"))}>{say("留出的提示", "held-out")}</a>}
      {page === "step" && <a href={to.step(id, Number(step))} aria-current={here(row === undefined)}>{say(`第 ${step} 步`, `step ${step}`)}</a>}
      {row !== undefined && <a href={to.rollout(id, Number(step), Number(row))} aria-current="page">#{row}</a>}
      <span class="trail-more">
        {own === id && hasUnder(`${paths.run(id)}/audit`) && <a href={to.audit(id)} aria-current={here(page === "audit")}>{say("审计", "Audit")}</a>}
        <a href={to.through(id)} aria-current={here(page === "through")}>{say("随训练", "Through time")}</a>
      </span>
    </nav>
  );
}
