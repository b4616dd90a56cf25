// Measures what docs/performance.md says of pages and of the server: `node measure.mjs`.
// Pages of a run on 16,384 GPUs (size, and how long Chromium takes to show them), and how long
// requests to `serve` take while two runs compute.
import { statSync } from "node:fs";
import { join } from "node:path";
import { fatflow, folder, open, serve } from "./common.mjs";

const place = folder();
const pages = {
  run: ["run", "llama3-meta-roce"],
  topo: ["topo", "llama3-meta-roce"],
  traffic: ["traffic", "llama3-meta-roce"],
  collective: ["collective", "all_reduce", "llama3-meta-roce", "--gpus", "16384", "-b", "1G", "-e", "1G", "--engine", "analytic"],
};
const { browser, page } = await open();
for (const [name, words] of Object.entries(pages)) {
  const file = join(place, `${name}.html`);
  fatflow(...words, "--report", file, "--json");
  const times = [];
  for (let turn = 0; turn < 3; turn += 1) {
    const began = performance.now();
    await page.goto(`file://${file}`);
    await page.waitForSelector("html[data-drawn]");
    times.push(performance.now() - began);
  }
  times.sort((a, b) => a - b);
  console.log(`${name}: ${(statSync(file).size / 1e6).toFixed(2)} MB, shown in ${(times[1] / 1e3).toFixed(2)} s (median of 3)`);
}
await browser.close();

const server = await serve(folder(), "--runs", "2", "--processors", "1");
const { address } = server;
const json = { "content-type": "application/json" };
const long = `name = "long"\n[cluster]\ngpus = 128\ngpus_per_node = 1\nnics_per_node = 1\n[fabric]\ntopology = "fat-tree"\nk = 8\n[traffic]\npattern = "permutation"\nbytes = "4GiB"\n`;
const start = (body) => fetch(`${address}/api/runs`, { method: "POST", headers: json, body: JSON.stringify(body) });
await start({ name: "first", command: "run", scenarios: ['from = "small-16"\n'] });
const states = async () => (await (await fetch(`${address}/api/runs`)).json()).map((run) => run.status);
while (!(await states()).includes("done")) await new Promise((resolve) => setTimeout(resolve, 200));
for (const name of ["a", "b"]) await start({ name, command: "run", engine: "packet", scenarios: [long] });
while ((await states()).filter((status) => status === "running").length < 2) await new Promise((resolve) => setTimeout(resolve, 200));
for (const path of ["/api/presets", "/api/schema"]) await (await fetch(address + path)).text();
const asked = ["/", "/app.js", "/app.css", "/api/runs", "/api/runs/1", "/api/runs/1/report.html", "/api/runs/1/result.json", "/api/runs/1/fabric.json", "/api/presets", "/api/schema", "/api/files", "/api/me"];
const took = [];
const checks = [];
for (let turn = 0; turn < 40; turn += 1) {
  for (const path of asked) {
    const began = performance.now();
    await (await fetch(address + path)).arrayBuffer();
    took.push(performance.now() - began);
  }
  const began = performance.now();
  await (await fetch(`${address}/api/check`, { method: "POST", headers: json, body: JSON.stringify({ text: 'from = "small-16"\n' }) })).arrayBuffer();
  checks.push(performance.now() - began);
}
const still = (await states()).filter((status) => status === "running").length;
const quantile = (values, share) => [...values].sort((a, b) => a - b)[Math.floor(share * (values.length - 1))].toFixed(1);
const all = [...took, ...checks];
console.log(`serve while ${still} runs compute: ${all.length} requests, median ${quantile(all, 0.5)} ms, 95 % within ${quantile(all, 0.95)} ms, longest ${quantile(all, 1)} ms; without checks 95 % within ${quantile(took, 0.95)} ms; checks alone ${quantile(checks, 0.5)} ms, 95 % within ${quantile(checks, 0.95)} ms`);
await server.kill();
