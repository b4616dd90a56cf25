// `fatflow serve` as people use it: run, mistakes in place, stop, compare, a kill and a restart.
import test from "node:test";
import assert from "node:assert/strict";
import { folder, open, serve } from "./common.mjs";

test("a scenario runs end to end, mistakes show in place, runs survive a kill", async () => {
  const workspace = folder();
  let server = await serve(workspace);
  const { browser, page, complaints } = await open();
  await page.goto(server.address);
  await page.waitForSelector("#problems li.good");

  await page.fill("#text", 'from = "small-16"\nname = "First"\n\n[cluster]\ngpuz = 16\n');
  await page.waitForSelector("#problems li:not(.good)");
  assert.match(await page.textContent("#problems"), /line 5.*gpuz/s);
  assert.equal(await page.textContent("#gutter b"), "5\n");
  assert.equal(await page.isDisabled("#start"), true);

  await page.fill("#text", 'from = "small-16"\nname = "First"\n');
  await page.waitForSelector("#problems li.good");
  await page.click("#start");
  await page.waitForSelector("iframe");
  await page.waitForFunction(() => document.querySelector("#runs")?.textContent.includes("done"));

  await page.click("#tab-form");
  const seed = page.locator('input[data-key="seed"]');
  await seed.fill("7");
  await seed.press("Enter");
  await page.click("#tab-text");
  await page.waitForFunction(() => document.querySelector("#text").value.includes("seed = 7"));
  assert.deepEqual(complaints.filter((text) => !text.includes("sandbox")), []);

  await server.kill();
  server = await serve(workspace);
  await page.goto(server.address);
  await page.waitForFunction(() => document.querySelector("#runs")?.textContent.includes("First"));
  await browser.close();
  await server.kill();
});

test("a long run can be stopped", async () => {
  const server = await serve(folder());
  const { browser, page } = await open();
  await page.goto(server.address);
  const long = `name = "long"
[cluster]
gpus = 1024
gpus_per_node = 1
nics_per_node = 1
[fabric]
topology = "fat-tree"
k = 16
[traffic]
pattern = "permutation"
bytes = "512MiB"
`;
  await page.fill("#text", long);
  await page.waitForSelector("#problems li.good");
  await page.selectOption("#engine", "packet");
  await page.click("#start");
  await page.click("#runs button:has-text('Stop')");
  await page.waitForFunction(() => /stopped|failed/.test(document.querySelector("#runs")?.textContent ?? ""));
  await browser.close();
  await server.kill();
});
