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

  for (const format of ["JSON", "report"]) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.click(`#runs a:has-text("${format}")`)]);
    assert.match(download.suggestedFilename(), /^fatflow-1/);
  }
  await page.waitForSelector("#problems li.good");
  await page.click("#start");
  await page.waitForFunction(() => document.querySelector("#runs").textContent.match(/done in/g)?.length === 2);
  for (const box of await page.$$("#runs input[type=checkbox]")) await box.check();
  await page.click("#beside");
  assert.equal(await page.locator("#view iframe").count(), 2, "two runs stand beside each other");
  await page.setViewportSize({ width: 390, height: 900 });
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 1, `nothing sticks out of a phone (${overflow})`);

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
  // Packets of a minute or more: long enough to be stopped, short enough not to be refused.
  const long = `name = "long"
[cluster]
gpus = 128
gpus_per_node = 1
nics_per_node = 1
[fabric]
topology = "fat-tree"
k = 8
[traffic]
pattern = "permutation"
bytes = "4GiB"
`;
  await page.fill("#text", long);
  await page.waitForSelector("#problems li.good");
  await page.selectOption("#engine", "packet");
  await page.click("#start");
  await page.waitForFunction(() => /running.*\d+ s: .*events/s.test(document.querySelector("#runs")?.textContent ?? ""), null, { timeout: 60_000 });
  await page.click("#runs button:has-text('Stop')");
  await page.waitForFunction(() => /stopped/.test(document.querySelector("#runs")?.textContent ?? ""));
  await browser.close();
  await server.kill();
});
