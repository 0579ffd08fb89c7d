// Bundles the page into the Python package, or with --tests the unit tests for Node's test runner; --watch rebuilds on changes.

import { cp, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build, context } from "esbuild";

const OUT = "../src/seq2see/server/explore/page";
const MAX_SIZE = 110 * 1024; // compressed, without the font

const page = {
  entryPoints: { app: "src/main.tsx" },
  outdir: OUT,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022", "chrome123", "firefox120", "safari17.5"], // the first to support light-dark()
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".woff2": "file" },
  assetNames: "[name]",
  legalComments: "none",
  logLevel: "warning",
};

process.chdir(import.meta.dirname ?? new URL(".", import.meta.url).pathname);

if (process.argv.includes("--tests")) {
  const tests = (await readdir("test")).filter((name) => name.endsWith(".test.ts"));
  await rm(".tests", { recursive: true, force: true });
  await build({
    entryPoints: tests.map((name) => `test/${name}`),
    outdir: ".tests",
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
  });
} else {
  await rm(OUT, { recursive: true, force: true });
  await mkdir(OUT, { recursive: true });
  if (process.argv.includes("--watch")) {
    await (await context({ ...page, minify: false })).watch();
  } else {
    await build(page);
    const files = ["static/index.html", `${OUT}/app.js`, `${OUT}/app.css`];
    const sizes = await Promise.all(files.map(async (name) => gzipSync(await readFile(name)).length));
    const size = sizes.reduce((a, b) => a + b);
    console.log(`page: ${(size / 1024).toFixed(1)} KB compressed (maximum ${MAX_SIZE / 1024} KB)`);
    if (size > MAX_SIZE) process.exit(1);
  }
  await cp("static", OUT, { recursive: true }); // last, since index.html marks a complete build
}
