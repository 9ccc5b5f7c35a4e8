// The browser of rollouts: choose by step, problem, category and reward; the thinking is folded.
const PAGE = 15;
const field = (id) => document.getElementById(id);
const CHOICES = {
  run: [field("by-run"), "all runs"], at: [field("by-at"), "all steps"],
  category: [field("by-category"), "all"], reward: [field("by-reward"), "any"],
};
const text = field("by-text");
let count = PAGE, problem = null;

function reward(row) {
  return row.reward === null ? "none" : row.reward >= 1 ? "1 or more" : row.reward > 0 ? "between" : row.reward < 0 ? "below 0" : "0";
}

const VALUE = {
  run: (row) => DATA.runs[row.run], at: (row) => (typeof row.at === "number" ? `step ${row.at}` : row.at),
  category: (row) => row.category, reward,
};

for (const [key, [select, all]] of Object.entries(CHOICES)) {
  const counts = new Map();
  for (const row of DATA.rollouts) counts.set(VALUE[key](row), (counts.get(VALUE[key](row)) || 0) + 1);
  const first = make("option", "", all);
  first.value = "";
  select.append(first);
  const order = [...counts];
  if (key === "category") order.sort((a, b) => b[1] - a[1]);
  order.forEach(([value, number]) => {
    const option = make("option", "", `${value} (${number})`);
    option.value = "=" + value;
    select.append(option);
  });
  select.addEventListener("change", () => show(PAGE));
}
text.addEventListener("input", () => { problem = null; show(PAGE); });
field("choose").addEventListener("submit", (event) => event.preventDefault());
field("choose").addEventListener("reset", () => { problem = null; setTimeout(() => show(PAGE)); });
field("next").addEventListener("click", () => show(count + PAGE));

function chosen() {
  const wanted = text.value.trim().toLowerCase();
  return DATA.rollouts.filter((row) => {
    for (const [key, [select]] of Object.entries(CHOICES)) if (select.value && select.value !== "=" + VALUE[key](row)) return false;
    if (problem !== null && row.problem !== problem) return false;
    return !wanted || [row.problem, row.gold, row.completion, row.reason].some((value) => value.toLowerCase().includes(wanted));
  });
}

function show(size) {
  count = size;
  const rows = chosen(), list = field("list");
  list.replaceChildren(...rows.slice(0, count).map(rolloutCard));
  field("next").hidden = rows.length <= count;
  field("found").textContent = DATA.rollouts.length ? `${rows.length.toLocaleString("en")} of ${DATA.rollouts.length.toLocaleString("en")} kept in this page${problem === null ? "" : ", one problem"}` : "";
}

function rolloutCard(row) {
  const state = row.reward === null ? "none" : row.reward > 0 ? "right" : "wrong";
  const element = make("article", `rollout ${state}`), meta = make("div", "meta");
  if (DATA.runs.length > 1) {
    const run = make("b", "", DATA.runs[row.run]);
    run.prepend(make("span", `dot run-${row.run % 8}`));
    meta.append(run);
  }
  meta.append(make("b", "", VALUE.at(row)), make("span", "badge", row.category), make("span", "", `reward ${row.reward === null ? "none" : short(row.reward)}`));
  if (row.advantage !== null) meta.append(make("span", "", `advantage ${row.advantage > 0 ? "+" : ""}${short(row.advantage)}`));
  const parts = Object.entries(row.parts).map(([key, value]) => `${key} ${short(value)}`).join(", ");
  if (parts) meta.append(make("span", "", parts));
  meta.append(make("span", "", `${row.tokens} tokens${row.finish === "length" ? ", cut off" : ""}`));
  if (problem === null) {
    const only = make("button", "", "this problem");
    only.type = "button";
    only.addEventListener("click", () => {
      problem = row.problem;
      show(PAGE);
      field("rollouts").scrollIntoView();
    });
    meta.append(only);
  }
  const question = make("div", "question", row.problem);
  if (row.gold) question.append(make("span", "gold", `  gold ${row.gold}`));
  element.append(meta, question, ...completion(row.completion));
  if (row.reason) element.append(make("p", "reason", `grader: ${row.reason}`));
  return element;
}

// up to the last end of thinking folded, the rest open; without an end everything is open
function completion(whole) {
  const end = whole.lastIndexOf("</think>");
  if (end < 0) return [make("div", "text", whole || "(empty)")];
  const cut = end + "</think>".length;
  const thought = make("details", "think"), words = whole.slice(0, cut).split(/\s+/).filter(Boolean).length;
  thought.append(make("summary", "", `thinking, ${words} words`), make("div", "text", whole.slice(0, cut)));
  return [thought, make("div", "text", whole.slice(cut).trim() || "(nothing after the thinking)")];
}

show(PAGE);
