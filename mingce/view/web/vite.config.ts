import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

/** Writes down what the page was built from, so that a test can tell a stale one without Node. */
const builtFrom: Plugin = {
  name: "built-from",
  generateBundle() {
    const hash = createHash("sha256");
    for (const file of SOURCES.flatMap(filesOf).sort()) hash.update(readFileSync(file));
    this.emitFile({ type: "asset", fileName: "built-from.txt", source: `${hash.digest("hex")}\n` });
  },
};
const SOURCES = ["src", "public", "index.html", "package-lock.json", "tsconfig.json", "vite.config.ts"];
const filesOf = (path: string): string[] =>
  statSync(path).isDirectory() ? readdirSync(path).flatMap((name) => filesOf(`${path}/${name}`)) : [path];

// One script and one stylesheet: the server serves them as they are and the export puts them into one file.
export default defineConfig({
  base: "/static/",
  plugins: [builtFrom],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../static",
    emptyOutDir: true,
    target: "es2022",
    sourcemap: false,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: {
        entryFileNames: "assets/app-[hash].js",
        assetFileNames: "assets/app-[hash][extname]",
        codeSplitting: false,
      },
    },
  },
});
