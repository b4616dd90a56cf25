// Makes the pictures of README and book from reports of the program:
//
//   cargo build -p cli && (cd tests/browser && npm ci) && node docs/pictures/make.mjs
//
// A test runs every command of the list and finds every figure (tests/browser/pictures.test.mjs).
import { fileURLToPath } from "node:url";
import { join } from "node:path";
import { fatflow, folder, open } from "../../tests/browser/common.mjs";

const here = fileURLToPath(new URL(".", import.meta.url));
const bench = fileURLToPath(new URL("../../scenarios/bench/", import.meta.url));
// File, command line, the figure's title, and what to do with it before the picture is taken.
export const pictures = [
  ["waterfall.png", ["run", "small-1024"], /^Where .* of one step go/],
  ["timeline.png", ["run", "small-1024"], /^What each rank does/],
  ["links.png", ["run", "small-128"], /^Load of every link/],
  ["fabric.png", ["run", "small-128"], /^The fabric, with the load/, async (figure) => { await figure.locator(".folds").nth(1).click(); await figure.page().evaluate(() => document.activeElement.blur()); }],
  ["busbw.png", ["collective", "all_reduce", "gpt4-azure", "--gpus", "8", "-b", "32K", "-e", "16G"], /^Bus bandwidth/],
  ["queues.png", ["run", join(bench, "incast-32.toml"), "--engine", "packet"], /^Queue depth over time: data/],
  ["bursts.png", ["traffic", "claims/deepseek-limited"], /^Passes from within/],
  ["faults.png", ["run", "small-128", "--set", 'faults=[{on="NIC 0", at="20s", for="2s", what={kind="link-down"}}, {on="GPU 0", at="40s", for="8s", what={kind="slow-gpu", speed=0.5}}]'], /^Steps and faults on one clock/],
  ["validate.png", ["validate", "--engine", "analytic"], /^How far each prediction/],
];

/// Opens the report that a command writes, with the figure in sight.
export const figure = async (words, title) => {
  const file = join(folder(), "report.html");
  fatflow(...words, "--report", file);
  const opened = await open({ viewport: { width: 800, height: 900 }, colorScheme: "light" });
  await opened.page.goto(`file://${file}`);
  await opened.page.waitForSelector("html[data-drawn]");
  const found = opened.page.locator("figure").filter({ has: opened.page.locator("h3", { hasText: title }) });
  return { ...opened, found };
};

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [file, words, title, prepare] of pictures) {
    const { browser, page, found } = await figure(words, title);
    if (prepare) await prepare(found);
    await page.addStyleTag({ content: ".tools, figcaption { display: none !important } figure { border: 0 !important }" });
    await found.screenshot({ path: join(here, file) });
    await browser.close();
  }
}
