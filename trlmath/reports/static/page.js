// What the other scripts of the page share: the data, colours, and elements made of text, never of HTML.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined && text !== null) element.textContent = String(text);
  return element;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function runColour(number) {
  return colour("--r" + (number % 8));
}

function short(value) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace("e+", "e");
  if (size >= 100) return value.toLocaleString("en", { maximumFractionDigits: size >= 1000 ? 0 : 1 });
  return String(Number(value.toPrecision(3)));
}
