// The page of a report: everything drawn, nothing complained, nothing requested; unfolding, hovering,
// the keyboard, downloads, printing, narrow screens, light and dark, colours and grey.
import test from "node:test";
import assert from "node:assert/strict";
import { join } from "node:path";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { fatflow, folder, open, serious } from "./common.mjs";

const home = folder();
const bench = new URL("../../scenarios/bench/", import.meta.url).pathname;
// Name, command line, and the kinds of charts that must be there.
const pages = [
  ["topo", ["topo", "llama3-meta-roce"], ["tree", "bars"]],
  ["collective", ["collective", "all_reduce", "small-128", "-b", "1M", "-e", "64M", "-f", "4"], ["line", "heat", "histogram", "tree"]],
  ["run", ["run", "small-1024"], ["waterfall", "timeline", "heat", "bars", "histogram", "tree"]],
  ["flows", ["run", join(bench, "permutation-128.toml"), "--engine", "flow"], ["distribution", "timeline", "heat", "histogram", "tree"]],
  ["packets", ["run", join(bench, "incast-32.toml"), "--engine", "packet"], ["distribution", "timeline", "line", "heat", "histogram", "tree"]],
  ["traffic", ["traffic", "small-128"], ["bars", "distribution", "area", "heat"]],
  ["compare", ["compare", "small-16", "small-128"], ["bars", "dots"]],
  ["queue pairs", ["compare", "small-16", "--vary", "network.routing.qps=1,2,4,8,16,32", "--seeds", "4"], ["bars", "dots"]],
  ["deployments", ["compare", "gpt4-azure", "llama3-meta-roce", "deepseek-v2", "grok4-colossus", "--engine", "analytic"], ["bars", "dots"]],
  ["validate", ["validate", "--engine", "analytic"], ["dots", "scatter"]],
  ["sweep", ["sweep", "show", join(home, "study"), "--goal", "step_s", "--goal", "mfu"], ["parallel", "scatter", "bars"]],
];
writeFileSync(join(home, "grid.toml"), `from = "small-16"
engine = "analytic"
[axes]
"network.routing.qps" = [1, 4, 16]
"job.batch.sequences" = { from = 16, to = 64, step = 16 }
"network.routing.policy" = ["ecmp", "spray"]
`);
fatflow("sweep", "run", join(home, "grid.toml"), "--out", join(home, "study"));
const shown = (name) => `file://${join(home, `${name}.html`)}`;
const drawn = (page) => page.waitForSelector("html[data-drawn]");

for (const [name, words, kinds] of pages) {
  test(`the report of ${name} draws itself and asks nobody`, async () => {
    fatflow(...words, "--report", join(home, `${name}.html`));
    assert.ok(statSync(join(home, `${name}.html`)).size < 5e6, "a page stays under 5 MB");
    const { browser, page, complaints, requests } = await open();
    let fastest = Infinity;
    // The machine may be busy: the best of three counts.
    for (let attempt = 0; attempt < 3 && fastest > 2000; attempt += 1) {
      await page.goto(shown(name));
      await drawn(page);
      fastest = Math.min(fastest, await page.evaluate(() => performance.now()));
    }
    assert.ok(fastest < 2000, `the page is there in under 2 s (${fastest} ms)`);
    const figures = await page.$$eval("figure .chart", (all) => all.map((one) => ({ kind: one.dataset.kind, parts: one.querySelectorAll("svg :is(path, rect, circle)").length })));
    assert.equal(String(figures.length), await page.getAttribute("html", "data-drawn"));
    assert.ok(figures.every(({ parts }) => parts > 1), `every chart is drawn: ${JSON.stringify(figures)}`);
    for (const kind of kinds) assert.ok(figures.some((figure) => figure.kind === kind), `there is a ${kind} chart`);
    const titles = await page.$$eval("figure > h3", (all) => all.map((one) => one.textContent));
    assert.ok(titles.every((title) => title.length > 12), "every title says what the chart shows");
    assert.equal(new Set(titles).size, titles.length, "no two charts have one title");
    for (const width of [1280, 390]) {
      for (const colorScheme of ["light", "dark"]) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 900 });
        await page.waitForTimeout(300);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(overflow <= 1, `nothing sticks out at ${width} pixels (${overflow})`);
        const clipped = await page.$$eval("figure .chart svg text", (all) => all.filter((text) => {
          const own = text.getBoundingClientRect(), box = text.closest("figure").getBoundingClientRect();
          return own.width > 0 && (own.left < box.left - 2 || own.right > box.right + 2);
        }).map((text) => text.textContent));
        assert.deepEqual(clipped, [], `no text leaves its figure at ${width} pixels`);
        const hidden = await page.$$eval("table", (all) => all.filter((one) => one.offsetWidth > one.parentElement.clientWidth + 1).map((one) => one.textContent.slice(0, 60)));
        if (width === 1280) assert.deepEqual(hidden, [], "every table has room");
      }
    }
    assert.deepEqual(await serious(page), [], "axe finds nothing serious");
    assert.match(await page.textContent("header.page"), /20\d\d-\d\d-\d\d/, "the page says when it was made");
    const textures = () => page.locator("[fill^='url(#texture-']").count();
    const before = await textures();
    const paper = await page.pdf({ format: "A4" });
    assert.ok(paper.length < 2e6, `a PDF stays under 2 MB (${paper.length})`);
    assert.equal(await textures(), before, "the screen has its textures again");
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests.filter((url) => !url.startsWith("file:") && !url.startsWith("data:")), []);
    await browser.close();
  });
}

test("light and dark can be switched, and differ", async () => {
  const { browser, page } = await open({ colorScheme: "light" });
  await page.goto(shown("run"));
  await drawn(page);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.click("nav.page button");
  assert.equal(await page.getAttribute("html", "data-theme"), "dark");
  assert.notEqual(await ground(), light);
  await browser.close();
});

test("hovering and the arrow keys tell what lies there", async () => {
  const { browser, page, complaints } = await open();
  await page.goto(shown("run"));
  await drawn(page);
  const bar = page.locator("[data-kind=waterfall] [aria-label=bar] path, [data-kind=waterfall] [aria-label=bar] rect").first();
  await bar.scrollIntoViewIfNeeded();
  await bar.hover();
  await page.waitForFunction(() => document.querySelector("[data-kind=waterfall] [aria-label=tip]")?.textContent.includes("compute"));
  const svg = page.locator("[data-kind=timeline] svg[tabindex]").first();
  await svg.focus();
  for (let times = 0; times < 3; times += 1) await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => /microbatch/.test(document.querySelector(".heard").textContent));
  assert.deepEqual(complaints, []);
  await browser.close();
});

test("the fabric unfolds from cluster to zone to rack to node, by mouse and by keyboard", async () => {
  const { browser, page } = await open();
  await page.goto(shown("topo"));
  await drawn(page);
  const node = (name) => page.locator(`.tree [role=treeitem][aria-label^="${name}"]`).first();
  await node("zone 3").click();
  assert.equal(await node("zone 3").getAttribute("aria-expanded"), "true");
  const rack = node("zone 3 RTSW");
  await rack.focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector('.tree [aria-label^="node "]');
  const focused = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  assert.match(focused, /^zone 3 RTSW/, "the keyboard stays where it was");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator('.tree [aria-label^="node "]').count(), 0, "and folds again");
  await browser.close();
});

test("every chart has its data behind it", async () => {
  const { browser, page } = await open();
  await page.goto(shown("run"));
  await drawn(page);
  const buttons = await page.$$('figure .tools button:has-text("CSV")');
  assert.ok(buttons.length > 5);
  for (const button of buttons) {
    const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
    assert.match(download.suggestedFilename(), /^fatflow-run-\d+\.csv$/);
    const lines = readFileSync(await download.path(), "utf8").trim().split("\n");
    assert.ok(lines.length > 1 && lines[0].includes(","), lines[0]);
  }
  const shownData = page.locator("figure .tools details").first();
  await shownData.locator("summary").click();
  await shownData.locator("tbody tr").first().waitFor();
  await browser.close();
});

test("grey is enough: series differ by texture, dash or symbol", async () => {
  const { browser, page } = await open();
  await page.goto(shown("compare"));
  await drawn(page);
  const fills = await page.$$eval("[data-kind=bars] [aria-label=bar] [fill]", (all) => [...new Set(all.map((one) => one.getAttribute("fill")))]);
  assert.ok(fills.length > 2 && fills.every((fill) => fill.startsWith("url(#texture-")), fills.join());
  const textures = await page.$$eval(".textures pattern path", (all) => all.map((one) => one.getAttribute("d")));
  assert.equal(new Set(textures).size, textures.length, "no two textures are alike");
  await browser.close();
});

test("paper shows everything that folds away on a screen", async () => {
  const { browser, page } = await open();
  await page.goto(shown("validate"));
  await drawn(page);
  const hidden = () => page.$$eval("tr.rest", (all) => all.filter((row) => row.getClientRects().length === 0).length);
  assert.ok(await hidden() > 10, "long tables are folded");
  await page.click("button[aria-expanded]");
  await page.click("button[aria-expanded]");
  await page.emulateMedia({ media: "print" });
  assert.equal(await hidden(), 0);
  assert.equal(await page.isVisible("nav.page"), false, "paper needs no navigation");
  const paper = await page.pdf({ format: "A4" });
  assert.ok(paper.length > 20_000);
  await browser.close();
});

test("cases that are chosen in one chart of a sweep stand out in the others", async () => {
  const { browser, page, complaints } = await open();
  await page.goto(shown("sweep"));
  await drawn(page);
  const scatter = page.locator('.chart[data-kind="scatter"] svg').last();
  const faint = () => page.$$eval('.chart[data-kind="scatter"] svg [aria-label="dot"] circle', (all) => all.filter((dot) => Number(dot.getAttribute("stroke-opacity")) < 0.5).length);
  assert.equal(await faint(), 0);
  await scatter.scrollIntoViewIfNeeded();
  const box = await scatter.boundingBox();
  await page.mouse.move(box.x + 66, box.y + 4);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height - 50, { steps: 4 });
  await page.mouse.up();
  const chosen = Number(await page.getAttribute("html", "data-chosen"));
  assert.ok(chosen > 0 && chosen < 24, `some of 24 cases are chosen (${chosen})`);
  assert.ok(await faint() > 0, "the others are faint, in every chart");
  assert.match(await page.textContent("p.chosen"), new RegExp(`Chosen: ${chosen} of 24`));
  await scatter.click({ position: { x: box.width - 30, y: 8 } });
  assert.equal(await page.getAttribute("html", "data-chosen"), "0");
  // A straight line down an axis chooses too; on a small screen axes lie, and one drags across.
  const axes = async () => {
    const lines = page.locator('.chart[data-kind="parallel"] svg [aria-label="rule"] line');
    await lines.first().scrollIntoViewIfNeeded();
    return Promise.all((await lines.all()).map((line) => line.boundingBox()));
  };
  const [first] = await axes();
  await page.mouse.move(first.x, first.y - 10);
  await page.mouse.down();
  await page.mouse.move(first.x, first.y + first.height / 4, { steps: 4 });
  await page.mouse.up();
  const above = Number(await page.getAttribute("html", "data-chosen"));
  assert.ok(above > 0 && above < 24, `some are chosen along an axis (${above})`);
  await page.setViewportSize({ width: 390, height: 800 });
  await page.waitForTimeout(400);
  const [lying] = await axes();
  assert.ok(lying.width > 200 && lying.height < 2, "axes lie where there is little room");
  assert.deepEqual(complaints, []);
  await browser.close();
});

test("pictures over time zoom, by dragging, buttons and keys", async () => {
  const { browser, page, complaints } = await open();
  await page.goto(shown("run"));
  await drawn(page);
  const figure = page.locator("figure:has([data-kind=timeline])").first();
  const ticks = () => figure.locator('[aria-label="x-axis tick label"]').textContent();
  const whole = await ticks();
  await figure.locator('button:has-text("+")').click();
  const half = await ticks();
  assert.notEqual(half, whole, "a button zooms");
  await figure.locator("svg").last().focus();
  await page.keyboard.press("+");
  assert.notEqual(await ticks(), half, "a key zooms on, and the picture keeps the focus");
  await page.keyboard.press("0");
  assert.equal(await ticks(), whole, "0 shows all");
  await figure.scrollIntoViewIfNeeded();
  const box = await figure.locator("svg").last().boundingBox();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 60, { steps: 4 });
  await page.mouse.up();
  assert.notEqual(await ticks(), whole, "dragging zooms");
  await figure.locator('button:has-text("whole")').click();
  assert.equal(await ticks(), whole);
  assert.deepEqual(complaints, []);
  await browser.close();
});
