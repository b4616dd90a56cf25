// The page of a report: everything drawn, nothing complained, nothing requested; folding, hovering,
// printing, narrow screens, light and dark.
import test from "node:test";
import assert from "node:assert/strict";
import { join } from "node:path";
import { statSync } from "node:fs";
import { fatflow, folder, open } from "./common.mjs";

const home = folder();
const pages = [
  ["topo", ["topo", "small-128"]],
  ["collective", ["collective", "all_reduce", "small-128", "-b", "1M", "-e", "64M", "-f", "4"]],
  ["run", ["run", "small-128"]],
  ["traffic", ["traffic", "small-128"]],
  ["compare", ["compare", "small-16", "small-128"]],
];

for (const [name, words] of pages) {
  test(`the report of ${name} draws itself and asks nobody`, async () => {
    const file = join(home, `${name}.html`);
    fatflow(...words, "--report", file);
    assert.ok(statSync(file).size < 5e6, "a page stays under 5 MB");
    const { browser, page, complaints, requests } = await open();
    const began = Date.now();
    await page.goto(`file://${file}`);
    await page.waitForSelector("html[data-drawn]");
    assert.ok(Date.now() - began < 2000 * 3, "the page is there soon");
    const figures = await page.$$eval("figure .chart", (all) => all.map((one) => one.childElementCount));
    assert.equal(String(figures.length), await page.getAttribute("html", "data-drawn"));
    assert.ok(figures.every((count) => count > 0), "every chart is drawn");
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests.filter((url) => !url.startsWith("file:") && !url.startsWith("data:")), []);
    for (const width of [1280, 390]) {
      await page.setViewportSize({ width, height: 900 });
      await page.waitForTimeout(400);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 1, `nothing sticks out at ${width} pixels (${overflow})`);
    }
    await page.click("nav.page button");
    assert.match(await page.getAttribute("html", "data-theme"), /light|dark/);
    await page.emulateMedia({ media: "print" });
    assert.equal(await page.isVisible("nav.page"), false, "paper needs no navigation");
    await browser.close();
  });
}
