/** Who speaks in a conversation, in the page's language; a template's own roles by their names. */
import type { Lang } from "./types";

const ROLES: Record<string, [string, string]> = {
  system: ["系统", "system"],
  developer: ["开发者", "developer"],
  user: ["用户", "user"],
  assistant: ["助手", "assistant"],
  tool: ["工具", "tool"],
  observation: ["环境给的", "observation"],
};

export function roleName(role: string, lang: Lang): string {
  const names = Object.hasOwn(ROLES, role) ? ROLES[role] : [role, role];
  return lang === "zh" ? names[0] : names[1];
}
