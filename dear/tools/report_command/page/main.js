function show(data) {
  const runs = data.runs, traced = runs.filter((run) => run.trace);
  document.getElementById("title").textContent = data.title || `Report of ${runs.map((run) => run.name).slice(0, 4).join(", ")}${runs.length > 4 ? " and others" : ""}`;
  document.getElementById("about").textContent = `${count_of(runs.length, "run")}, read from ${runs.flatMap((run) => run.sources).join(", ")} by dear ${data.dear_version}.`;
  const parts = traced.length > 0 ? timelines(traced) : null;
  const sections = [
    ["runs", "Runs", overview(runs)], ["compare", "Two runs compared", comparison(runs)], ["timelines", "Timelines", parts && [parts]],
    ["ranks", "Where the time goes, by rank", by_rank(runs)], ["overlap", "Overlap by collective", by_collective(runs)], ["stragglers", "Stragglers", stragglers(runs)],
    ["spans", "Longest spans and waits", longest(runs)], ["steps", "Steps of the training", steps(runs)], ["tuning", "Trials of tuning", tuning(runs)], ["results", "Results as they were written", files(runs)],
  ];
  const contents = document.getElementById("contents"), main = document.getElementById("main");
  main.replaceChildren();
  for (const [id, title, content] of sections) {
    if (!content) continue;
    contents.append(element("a", { href: `#${id}`, text: title }));
    main.append(element("section", { id, "aria-labelledby": `${id}-title`, class: id === "timelines" ? "" : "long" }, element("h2", { id: `${id}-title`, text: title }), ...content));
  }
  if (document.querySelector("#licences pre").textContent.trim() === "") document.getElementById("footer").remove();
  if (parts) parts.start();
  requestAnimationFrame(draw_curves);
}
