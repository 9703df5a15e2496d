// Calling an agent: a command with its parameters; what it writes as it writes it, and how it ended.
//
// By the agent's WebSocket, one for each call. Closing the page ends what runs.
const { h } = Vue;

const MOST_LETTERS = 200000; // of output that are kept: what came first goes

// What is sent, of what was typed: JSON, or key=value on every line, or one argument a line.
export function paramsOf(text) {
  const trimmed = text.trim();
  if (!trimmed) return { params: [] };
  if (trimmed[0] === "{" || trimmed[0] === "[") {
    try {
      return { params: JSON.parse(trimmed) };
    } catch (error) {
      return { problem: `is not JSON: ${error.message}` };
    }
  }
  const lines = trimmed.split("\n").map((line) => line.trim()).filter(Boolean);
  const pairs = lines.map((line) => /^([A-Za-z_][\w.-]*)\s*=\s*(.*)$/.exec(line));
  return { params: pairs.every(Boolean) ? Object.fromEntries(pairs.map((found) => [found[1], found[2]])) : lines };
}

export default {
  props: { agent: String, commands: Array },
  data() {
    return { command: this.commands[0] ?? "", text: "", timeout: "", running: false, output: [], id: "", ended: null, problem: "" };
  },
  beforeUnmount() { this.socket?.close(); },
  methods: {
    call() {
      const told = paramsOf(this.text);
      const seconds = Number(this.timeout);
      this.problem = this.wrong(told, seconds);
      if (this.problem || this.running) return;
      const asked = { command: this.command.trim(), params: told.params, ...(this.timeout ? { timeout_s: seconds } : {}) };
      Object.assign(this, { running: true, output: [], id: "", ended: null });
      this.letters = 0;
      const scheme = window.location.protocol === "https:" ? "wss:" : "ws:";
      const socket = new WebSocket(`${scheme}//${window.location.host}/api/agents/${encodeURIComponent(this.agent)}/ws`);
      socket.onopen = () => socket.send(JSON.stringify(asked));
      socket.onmessage = (message) => this.hear(JSON.parse(message.data));
      socket.onclose = () => this.closed(socket);
      this.socket = socket;
    },
    wrong(told, seconds) {
      if (!this.command.trim()) return "Name a command first.";
      if (told.problem) return `The parameters: ${told.problem}`;
      if (this.timeout && !(seconds > 0)) return "The time must be seconds, more than 0.";
      return "";
    },
    hear(line) {
      if (line.type === "stdout" || line.type === "stderr") this.write(line.type, line.data);
      else if (line.type === "end") this.over(line);
      else if (line.type === "error") {
        this.problem = line.error?.message ?? "It was refused.";
        this.socket.close();
      } else if (line.id) this.id = line.id;
    },
    write(stream, data) {
      this.output.push({ stream, data });
      this.letters += data.length;
      while (this.letters > MOST_LETTERS && this.output.length > 1) this.letters -= this.output.shift().data.length;
    },
    over(line) {
      this.ended = line;
      this.id = line.id ?? this.id;
      this.socket.close();
    },
    closed(socket) {
      if (socket !== this.socket) return;
      if (this.running && !this.ended && !this.problem) this.problem = "The connection was lost; whether it ran is told by its task.";
      this.running = false;
    },
    cancel() { this.socket?.send(JSON.stringify({ cancel: true })); },
    outcome() {
      if (!this.ended) return null;
      const { error } = this.ended;
      const failed = this.ended.status === "failed" || Boolean(error);
      const head = failed ? failure(error ?? {}) : `done${this.ended.duration_s === undefined ? "" : ` in ${Number(this.ended.duration_s).toFixed(2)} s`}, exit status ${this.ended.exit ?? 0}`;
      const said = failed ? null : resultOf(this.ended.result);
      return h("div", { class: ["call-end", failed ? "bad" : "good"] }, [
        h("p", [h("strong", failed ? "✕ failed " : "✓ "), head, this.task()]),
        said ? h("pre", { class: "code", tabindex: 0, role: "group", "aria-label": "Result" }, said) : null,
      ]);
    },
    task() {
      const task = this.id.split(".")[0];
      return /^[0-9a-z]{8,}$/.test(task) ? [" · ", h("a", { href: `/board/tasks/${task}` }, "task")] : null;
    },
  },
  render() {
    const told = paramsOf(this.text);
    const bind = (name) => ({ value: this[name], onInput: (event) => { this[name] = event.target.value; } });
    const onKeydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.call();
      }
    };
    return h("form", { class: "call stack", "aria-label": `Call ${this.agent}`, onSubmit: (event) => { event.preventDefault(); this.call(); } }, [
      h("div", { class: "cluster end" }, [
        h("div", { class: "field" }, [h("label", { for: "call-command" }, "Command"),
          h("input", { id: "call-command", list: "call-commands", autocomplete: "off", spellcheck: false, maxlength: 128, ...bind("command") }),
          h("datalist", { id: "call-commands" }, this.commands.map((name) => h("option", { value: name })))]),
        h("div", { class: "field" }, [h("label", { for: "call-timeout" }, "Time it may take, in seconds"),
          h("input", { id: "call-timeout", inputmode: "decimal", placeholder: "as configured", ...bind("timeout") })]),
      ]),
      h("div", { class: "field multiline" }, [h("label", { for: "call-params" }, "Parameters"),
        h("textarea", { id: "call-params", rows: 3, spellcheck: false, "aria-describedby": "call-sent", onKeydown, ...bind("text") }),
        h("p", { id: "call-sent", class: "description" }, told.problem
          ? `JSON, key=value on every line, or one argument a line. It ${told.problem}`
          : `JSON, key=value on every line, or one argument a line. Sent as ${JSON.stringify(told.params)}`)]),
      h("div", { class: "cluster" }, [
        h("button", { type: "submit", class: "button main", disabled: this.running }, this.running ? "Running …" : "Call"),
        this.running ? h("button", { type: "button", class: "button danger", onClick: () => this.cancel() }, "Cancel the call") : null,
        h("span", { class: "soft", role: "status" }, this.running ? "under way" : this.ended ? "over" : ""),
      ]),
      this.problem ? h("p", { class: "told warning", role: "alert" }, this.problem) : null,
      this.output.length ? h("pre", { class: "code call-output", tabindex: 0, role: "group", "aria-label": "Output" },
        this.output.map((one) => h("span", { class: one.stream }, one.data))) : null,
      this.outcome(),
    ]);
  },
};

function failure(error) {
  const how = [
    error.exit !== undefined && error.exit !== null ? `exit status ${error.exit}` : "",
    error.signal !== undefined && error.signal !== null ? `signal ${error.signal}` : "",
    error.message ?? error.code ?? "",
  ].filter(Boolean);
  return how.join(": ");
}

function resultOf(result) {
  if (result === null || result === undefined || result === "") return "";
  return typeof result === "string" ? result : JSON.stringify(result, null, 2);
}
