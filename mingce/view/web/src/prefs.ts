/** Language and theme: remembered by the browser, else as the server or the browser says. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Both, Lang } from "./types";

export type Theme = "auto" | "light" | "dark";

function remembered(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null; // a file opened from disk may have no storage
  }
}

export function remember(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // then it holds until the page is closed
  }
}

export function firstLang(): Lang {
  const lang = remembered("lang");
  if (lang === "zh" || lang === "en") return lang;
  const told = document.querySelector<HTMLMetaElement>("meta[name=mingce-lang]")?.content; // what `mingce view` was told
  if (told === "zh" || told === "en") return told;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export function firstTheme(): Theme {
  const theme = remembered("theme");
  return theme === "light" || theme === "dark" ? theme : "auto";
}

export function firstLevel(): "child" | "engineer" | "proof" {
  const level = remembered("level");
  return level === "child" || level === "proof" ? level : "engineer";
}

export interface Prefs {
  lang: Lang;
  dark: boolean;
}

export const PrefsContext = createContext<Prefs>({ lang: "en", dark: false });

export interface Speech {
  lang: Lang;
  dark: boolean;
  /** The one of two texts that is in the page's language. */
  say: (zh: string, en: string) => string;
  pick: (both: Both) => string;
}

export function usePrefs(): Speech {
  const { lang, dark } = useContext(PrefsContext);
  return { lang, dark, say: (zh, en) => (lang === "zh" ? zh : en), pick: (both) => both[lang] };
}
