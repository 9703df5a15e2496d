// What the knobs say, as a command for a shell and as lines for penstock.toml.

function quoted(text) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

export function asCommand(page) {
  const parts = ["penstock", "whatif", quoted(page.run)];
  for (const one of page.changed) {
    const value = page.values[one.key];
    if (value === null) parts.push("--unset", quoted(one.key));
    else parts.push("--set", quoted(`${one.key}=${value}`));
  }
  if (page.typical) parts.push("--typical");
  return parts.join(" ");
}

export function asToml(page) {
  return page.changed
    .map((one) => (page.values[one.key] === null ? `# leave out ${one.key}` : `${one.key} = ${page.values[one.key]}`))
    .join("\n") || "# nothing has changed";
}
