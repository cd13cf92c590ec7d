"""The script of the planner page: arithmetic on the constants that Python wrote into the page."""

from __future__ import annotations

from typing import Final

__all__ = ["SCRIPT"]

SCRIPT: Final = r"""
const at = (name) => document.getElementById(name);
const value = (name) => Number(at(name).value);

// A number with n significant digits, as Python's format(x, ".ng") writes it.
function digits(x, n) {
  if (x === 0) return "0";
  const [mantissa, power] = x.toExponential(n - 1).split("e");
  const e = Number(power);
  if (e < -4 || e >= n) {
    const size = String(Math.abs(e)).padStart(2, "0");
    return String(Number(mantissa)) + "e" + (e < 0 ? "-" : "+") + size;
  }
  return String(Number(x.toPrecision(n)));
}

// To the nearest whole number, halves to the even one, as Python rounds.
function rounded(x) {
  const low = Math.floor(x), rest = x - low;
  return rest === 0.5 ? low + low % 2 : Math.round(x);
}

// The outlook of a plan; see cslr.methods.outlook and cslr.protocol.step4_aggregate.contribution.
function outlook(unit, count, sigma, tasks, cap, labels) {
  const directions = DATA.spread.length, rows = DATA.rows[unit];
  const ofLabels = Math.min(1, rows / labels);
  const spoken = unit === "person" ? 1 : tasks;
  const speakers = count * Math.min(cap, spoken) / tasks;
  let full = Math.max(1, Math.min(rows, DATA.mostRows)), tied = 0;
  if (full === DATA.mostRows || count * cap / tasks * ofLabels < DATA.many) {
    full = DATA.mostRows;
  } else {
    const noise = sigma * DATA.tiedNorm * Math.sqrt(tasks / 2)
      / (count * Math.min(cap, spoken));
    tied = DATA.spread.filter((each) => DATA.mostNoise * each >= noise).length;
    if (tied < DATA.leastTied) tied = 0;
  }
  const weight = Math.min(rows, full) / full;
  const signal = speakers * ofLabels * weight / (sigma * Math.sqrt(directions));
  const share = DATA.most * signal / (signal + DATA.half);
  return {speakers, tied, share, signal};
}

// Units from which on a good part is forecast: more of them also change the resolution.
function needed(share) {
  let most = 1;
  while (share(most) < DATA.little) most *= 2;
  let few = Math.floor(most / 2);
  while (most - few > 1) {
    const middle = Math.floor((few + most) / 2);
    if (share(middle) >= DATA.little) most = middle; else few = middle;
  }
  return most;
}

function advice(unit, found, shareOf) {
  const [, text] = DATA.advice[unit].find(([least]) => found.share >= least);
  const number = text.includes("# % of the gap")
    ? 5 * rounded(20 * found.share) : needed(shareOf).toLocaleString("en");
  return text.replace("#", number);
}

function show() {
  const unit = at("unit").value;
  const tasks = value("tasks"), labels = value("labels");
  if (value("cap") > tasks) at("cap").value = tasks;
  at("cap").max = tasks;
  const cap = value("cap");
  const count = DATA.counts[value("count")];
  const epsilon = DATA.epsilons[value("epsilon")];
  const delta = DATA.deltas[value("delta")];
  const sigma = DATA.sigmas[value("epsilon")][value("delta")] * Math.sqrt(cap);
  const found = outlook(unit, count, sigma, tasks, cap, labels);
  const shareOf = (units) => outlook(unit, units, sigma, tasks, cap, labels).share;
  at("advice").textContent = advice(unit, found, shareOf);
  at("advice").className = "verdict " + (found.share >= DATA.little ? "above" : "below");
  at("sigma").textContent = digits(sigma, 4);
  const share = rounded(100 * found.share), off = DATA.off[unit];
  at("share").textContent = `${share} % (elsewhere off by up to ${off} points)`;
  const low = Math.max(0, 100 * found.share - off), high = Math.min(100, 100 * found.share + off);
  at("band").style.left = low + "%";
  at("band").style.width = high - low + "%";
  at("mark").style.left = 100 * found.share + "%";
  at("ratio").textContent = digits(found.signal, 2);
  at("speakers").textContent = rounded(found.speakers).toLocaleString("en");
  at("released").textContent = found.tied
    ? DATA.released.tied.replace("#", found.tied) : DATA.released.plain;
  at("warning").textContent = delta * count >= 1
    ? "δ is not below one over the number of units: choose a smaller one." : "";
  const shown = {count: count.toLocaleString("en"), epsilon: epsilon, tasks: tasks, cap: cap,
    delta: DATA.deltaNames[value("delta")], labels: labels};
  for (const [name, text] of Object.entries(shown)) {
    at(name + "-shown").textContent = text;
    at(name).setAttribute("aria-valuetext", text);
  }
  const units = unit === "person" ? "--unit person --people " + count : "--clients " + count;
  at("command").textContent = "cslr plan --epsilon " + epsilon + " --delta " +
    DATA.deltaNames[value("delta")] + " " + units + " --tasks " + tasks + " --cap " + cap +
    " --labels " + labels;
}
document.querySelectorAll("input, select").forEach((each) => each.addEventListener("input", show));
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
show();
"""
