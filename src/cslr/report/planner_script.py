"""The script of the planner page: arithmetic on the numbers that Python wrote into it."""

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
  const size = DATA.directions * labels;
  const ratio = count / (sigma * Math.sqrt(size));
  const [, advice] = DATA.advice[unit].find(([least]) => ratio >= least);
  const need = Math.ceil(0.5 * sigma * Math.sqrt(size));
  at("advice").textContent = advice.replace("#", need);
  at("advice").className = "verdict " + (ratio >= 0.5 ? "above" : "below");
  at("sigma").textContent = digits(sigma, 4);
  at("ratio").textContent = digits(ratio, 2);
  at("released").textContent = labels + (labels === 1 ? " mean" : " means") + " in " +
    DATA.directions + " directions, once for each of " + tasks + " tasks";
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
    " --modes " + labels;
}
document.querySelectorAll("input, select").forEach((each) => each.addEventListener("input", show));
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
show();
"""
