// What the browser tests share: the binary, a browser, a server on a free port of loopback.
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const axe = fileURLToPath(import.meta.resolve("axe-core/axe.min.js"));
const root = fileURLToPath(new URL("../..", import.meta.url));
const target = process.env.CARGO_TARGET_DIR ?? join(root, "target");
export const binary = process.env.FATFLOW ?? join(target, "debug/fatflow");
export const folder = () => mkdtempSync(join(tmpdir(), "fatflow-browser-"));
export const fatflow = (...words) => execFileSync(binary, words, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 });

export const open = async (options = {}) => {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  const complaints = [];
  const requests = [];
  page.on("console", (message) => { if (message.type() === "error") complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("request", (request) => requests.push(request.url()));
  return { browser, page, complaints, requests };
};

export const serve = async (workspace, ...more) => {
  const listen = more.includes("--listen") ? [] : ["--listen", "127.0.0.1:0"];
  const child = spawn(binary, ["serve", "--workspace", workspace, ...listen, ...more], { stdio: ["ignore", "pipe", "inherit"] });
  // A test that fails leaves nothing running.
  process.on("exit", () => child.kill("SIGKILL"));
  const address = await new Promise((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (chunk) => {
      text += chunk;
      const found = text.match(/http:\/\/[\d.]+:\d+/);
      if (found) resolve(found[0]);
    });
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}`)));
  });
  return { address, child, kill: (signal = "SIGKILL") => new Promise((done) => { child.once("exit", done); child.kill(signal); }) };
};

/** What axe finds that is serious or worse: a rule and where. */
export const serious = async (page) => {
  // Through the debugger, for the page's policy takes no script from elsewhere.
  await page.evaluate(readFileSync(axe, "utf8"));
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const grave = violations.filter((found) => ["serious", "critical"].includes(found.impact));
  return grave.map((found) => `${found.id}: ${found.nodes[0].html}`);
};
