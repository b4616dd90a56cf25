// Bundles the page of `fatflow serve` into ../assets: `npm ci && npm run build` after a change.
import { build } from "esbuild";

await build({
  entryPoints: ["src/main.jsx"],
  outfile: "../assets/app.js",
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2020",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: "// Made by crates/serve/ui (npm run build) from preact and CodeMirror 6 (MIT); do not edit." },
});
