// The page without this script is complete. The script fetches it again each second, replaces the
// parts that have changed, and adds keys and the values under the pointer.
"use strict";
(() => {
  const root = document.documentElement, body = document.body;
  const live = document.getElementById("live"), pause = document.getElementById("pause");
  const help = document.getElementById("help"), main = document.getElementById("main");
  const every = 1000, most = 10000;
  let paused = false, wait = every, timer = 0, running = null;

  root.classList.add("scripted");

  function say(text, state) {
    live.hidden = false;
    if (live.textContent !== text) live.textContent = text;
    live.className = "liveness" + (state ? " " + state : "");
  }

  // replace puts a part of the fetched page in the place of the old one, unless it is in use.
  function replace(old, fresh) {
    const active = document.activeElement, inside = active && old.contains(active);
    if (inside && (active.matches("input") || active.matches("button"))) {
      for (const list of old.querySelectorAll(".events")) { // the list may change under the filter
        const other = fresh.querySelector(".events");
        if (other) list.replaceWith(document.importNode(other, true));
      }
      return;
    }
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && old.contains(chosen.anchorNode)) return;
    const scrolled = [...old.querySelectorAll(".scroll, .events, .log")].map((e) =>
      [e.scrollLeft, e.scrollTop, e.scrollHeight - e.scrollTop - e.clientHeight < 8]);
    const id = inside ? active.id : "", href = inside ? active.getAttribute("href") : "";
    const next = document.importNode(fresh, true);
    old.replaceWith(next);
    next.querySelectorAll(".scroll, .events, .log").forEach((e, i) => {
      if (!scrolled[i]) return;
      e.scrollLeft = scrolled[i][0];
      e.scrollTop = e.matches(".log") && scrolled[i][2] ? e.scrollHeight : scrolled[i][1];
    });
    if (!inside) return;
    const again = id ? document.getElementById(id) :
      [...next.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === href);
    if (again) again.focus({ preventScroll: true });
  }

  function take(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const fresh = new Map([...page.querySelectorAll("[data-part]")].map((p) => [p.id, p]));
    for (const old of [...document.querySelectorAll("[data-part]")]) {
      const next = fresh.get(old.id);
      fresh.delete(old.id);
      if (!next) old.remove();
      else if (next.dataset.hash !== old.dataset.hash) replace(old, next);
    }
    for (const next of fresh.values()) main.append(document.importNode(next, true));
    return page.body.dataset.live === "1";
  }

  async function refresh() {
    clearTimeout(timer);
    if (running) running.abort();
    const mine = running = new AbortController();
    const from = location.href;
    let again = true;
    try {
      const answer = await fetch(from, { signal: mine.signal, cache: "no-store" });
      const text = await answer.text();
      if (mine !== running || from !== location.href) return;
      if (answer.status === 401) {
        say("the dashboard was started again: open its new address", "broken");
        return;
      }
      again = take(text);
      wait = answer.ok ? every : Math.min(2 * wait, most);
      if (!again) say("not live", "paused");
      else if (answer.ok) say("live");
      else say("no answer", "broken");
    } catch (e) {
      if (e.name === "AbortError") return;
      wait = Math.min(2 * wait, most);
      say("the dashboard has ended", "broken");
    } finally {
      if (mine === running) running = null;
    }
    if (again) schedule();
  }

  function schedule() {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(refresh, wait);
  }

  function toggle() {
    paused = !paused;
    pause.textContent = paused ? "Continue" : "Pause";
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) {
      clearTimeout(timer);
      say("paused", "paused");
    } else refresh();
  }

  // The filter is in the address: a reload has it, too.
  let typing = 0;
  function filter() {
    const to = new URL(location.href), text = document.getElementById("filter").value.trim();
    if (text) to.searchParams.set("q", text); else to.searchParams.delete("q");
    if (document.getElementById("warnings").checked) to.searchParams.set("warnings", "1");
    else to.searchParams.delete("warnings");
    to.searchParams.delete("events");
    history.replaceState(null, "", to);
    refresh();
  }
  document.addEventListener("input", (e) => {
    if (e.target.id === "filter" || e.target.id === "warnings") {
      clearTimeout(typing);
      typing = setTimeout(filter, 150);
    }
  });
  document.addEventListener("submit", (e) => {
    if (e.target.matches(".filter")) {
      e.preventDefault();
      filter();
    }
  });

  function step(by) {
    const rows = [...document.querySelectorAll("[data-row]")];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement && document.activeElement.closest("[data-row]"));
    const row = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
    row.focus();
    row.scrollIntoView({ block: "nearest" });
  }

  function up() {
    const links = document.querySelectorAll(".crumbs a:not([aria-current])");
    if (links.length) links[links.length - 1].click();
  }

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || help.open) return;
    const field = e.target.matches("input, textarea, select");
    if (e.key === "Escape" && field) {
      e.target.blur();
      return;
    }
    if (field) return;
    const search = document.getElementById("filter"), warnings = document.getElementById("warnings");
    switch (e.key) {
      case "j": step(1); break;
      case "k": step(-1); break;
      case "/": if (!search) return; search.focus(); search.select(); break;
      case "w": if (!warnings) return; warnings.checked = !warnings.checked; filter(); break;
      case "p": toggle(); break;
      case "u": up(); break;
      case "?": help.showModal(); break;
      case "Enter": {
        const link = e.target.matches("[data-row]") && e.target.querySelector("a[href]");
        if (!link) return;
        link.click();
        break;
      }
      default: return;
    }
    e.preventDefault();
  });
  pause.addEventListener("click", toggle);
  document.getElementById("keys").addEventListener("click", () => help.showModal());

  // The value of a curve under the pointer.
  function read(e) {
    const plot = e.target.closest && e.target.closest(".plot");
    for (const c of document.querySelectorAll(".plot")) if (c !== plot) point(c, null);
    if (!plot) return;
    const box = plot.getBoundingClientRect(), x = 1000 * (e.clientX - box.left) / box.width;
    let near = null;
    for (const p of JSON.parse(plot.dataset.points || "[]") || [])
      if (!near || Math.abs(p.x - x) < Math.abs(near.x - x)) near = p;
    point(plot, near);
  }
  function point(plot, p) {
    const line = plot.querySelector("line.cursor"), dot = plot.querySelector("circle.cursor");
    for (const e of [line, dot]) e.setAttribute("visibility", p ? "visible" : "hidden");
    plot.parentElement.querySelector(".readout").textContent = p ? p.t : "";
    if (!p) return;
    line.setAttribute("x1", p.x / 10 + "%");
    line.setAttribute("x2", p.x / 10 + "%");
    dot.setAttribute("cx", p.x / 10 + "%");
    dot.setAttribute("cy", p.y + "%");
  }
  document.addEventListener("pointermove", read);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused && body.dataset.live) refresh(); });

  const log = document.getElementById("log");
  if (log) log.scrollTop = log.scrollHeight;
  if (body.dataset.live) {
    say("live");
    schedule();
  }
})();
