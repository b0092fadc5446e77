"use strict";
// The page takes what is new from the server now and then, while it is looked at.
const EVERY = 10000;
const mark = () => {
  for (const box of document.querySelectorAll(".scroll"))
    box.classList.toggle("over", box.scrollWidth > box.clientWidth + 1);
};
const refresh = async () => {
  if (document.hidden) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const old = document.getElementById("live");
    const sideways = [...old.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    old.replaceWith(document.adoptNode(fresh.getElementById("live")));
    document.title = fresh.title;
    document.querySelectorAll("#live .scroll").forEach((box, i) => { box.scrollLeft = sideways[i] || 0; });
    mark();
  } catch {
    document.getElementById("stale").hidden = false;
  }
};
const send = async (event) => {
  event.preventDefault();
  const form = event.target, said = form.querySelector("output");
  const method = event.submitter?.dataset.method || form.dataset.method;
  const given = Object.fromEntries([...new FormData(form)].filter(([, value]) => value.trim()));
  try {
    const answer = await fetch("v1/" + method, {
      method: "POST", credentials: "same-origin", body: JSON.stringify(given),
      headers: { "Content-Type": "application/json" },
    });
    said.textContent = answer.ok ? "Done." : (await answer.json()).message;
    if (answer.ok) refresh();
  } catch {
    said.textContent = "The server does not answer.";
  }
};
for (const form of document.querySelectorAll("form[data-method]")) form.addEventListener("submit", send);
mark();
addEventListener("resize", mark);
setInterval(refresh, EVERY);
addEventListener("visibilitychange", refresh);
