"""Every key that penstock.toml may hold, and the bounds of every number in it.

The readers refuse what is not in these tables, the docs test asks for each of `KEYS`, and a near miss is
answered with a word from here. A later part adds its keys here and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

TOP = (
    "store",
    "aging_s",
    "timeout_s",
    "keep_days",
    "heartbeat_s",
    "on_crash",
    "payload_limit_bytes",
    "output_root",
    "retry",
    "hosts",
    "lanes",
    "gates",
    "server",
    "models",
    "prices",
    "telemetry",
    "beads",
    "agents",
    "councils",
    "engine",
)
RETRY = ("retries", "base_s", "max_s", "host_faults")
HOST = ("type", "slots", "units", "serves", "model", "models", "rate", "fallback", "breaker", "ray")
OF_MODELS = "calls"  # a key of hosts that have models, beside those; a python host has an option of that name
SLOTS = ("auto", "min", "max")
RATE = ("requests_per_min", "tokens_per_min")
FALLBACK = ("after_s", "overflow_after_s", "budget_usd_per_day")
BREAKER = ("failures", "reset_s", "max_reset_s")
RAY = ("resources", "labels", "num_cpus", "per_worker")
LANE = ("max_running", "reserve", "weight", "budget_usd_per_day")
GATE = ("lane", "max_running", "probe", "min", "max", "every_s", "on_error", "holds")
HOLDS = ("lanes", "kinds", "hosts")
SERVER = (
    "host",
    "port",
    "patience_s",
    "down_patience_s",
    "body_limit_bytes",
    "max_queued",
    "max_queued_bytes",
    "requests_per_min",
    "cors",
    "record_bodies",
    "board",
    "advertise",
)
PRICE = ("input", "output", "cached")
TELEMETRY = ("otlp_endpoint",)
BEADS = (
    "kind",
    "labels",
    "patterns",
    "types",
    "lane",
    "actor",
    "root",
    "program",
    "due",
    "max_claimed",
)
PATTERN = ("match", "kind")
AGENT = (
    "image",
    "path",
    "command",
    "handlers",
    "runner",
    "python",
    "install",
    "update",
    "env",
    "pass_env",
    "port",
    "health",
    "plain",
    "network",
    "mounts",
    "limits",
    "read_only",
    "new_privileges",
    "capabilities",
    "user",
    "containers",
    "concurrency",
    "warm",
    "idle_s",
    "max_tasks",
    "max_age_s",
    "start_s",
    "queue",
)
AGENT_LIMITS = ("cpus", "memory_mb", "pids", "tmp_mb")
MOUNT = ("source", "target", "read_only")
COUNCIL = (
    "chair",
    "members",
    "min_answers",
    "patience_s",
    "mode",
    "retrieval",
    "quick",
    "rubric",
    "limits",
    "calls_lane",
    "slots",
)
MEMBER = (
    "name",
    "emoji",
    "role",
    "persona",
    "model",
    "kind",
    "host",
    "temperature",
    "max_tokens",
    "timeout_s",
    "weight",
    "context_tokens",
)
RETRIEVAL = (
    "collection",
    "top",
    "path",
    "url",
    "key_env",
    "tenant",
    "database",
    "embeddings",
    "chunk_words",
    "overlap_words",
)
QUICK = ("members", "unsure_below", "agree_at_least", "risk_words")
MODE_LIMITS = ("cost_usd", "time_s")

ENGINE = (
    "type",
    "address",
    "namespace",
    "working_dir",
    "excludes",
    "py_modules",
    "pip",
    "env",
    "pass_env",
    "runtime_env",
    "calls_url",
    "start_s",
    "idle_s",
)

FOREVER = "forever"  # keep_days: nothing is ever forgotten
ALIASES = {"overflow_after_s": "after_s"}

# The types of host that can be used, and the options of each; None takes any option.
HostTypes: TypeAlias = Mapping[str, Iterable[str] | None]

MODEL_TYPES = ("openai", "local")  # hosts that have models and answer calls for them
# Hosts whose attempts call models; without `url`, through Penstock itself.
RUN_TYPES = ("researcher", "file_prompt")
AGENT_TYPE = "agent"  # hosts whose attempts are commands of a container
CALLS_LANE = "calls"  # the lane of those calls, unless `calls_lane` names another
AUTO_MODEL = "auto"  # the name of any model of any host
PACKAGED_MODEL = "smollm2-135m-instruct"  # what a local host has unless `gguf` names a file

_MODEL_SERVER = (
    "url",
    "key_env",
    "key_file",
    "timeouts",
    "headers",
    "ca_file",
    "health_s",
    "defaults",
    "max_reply_bytes",
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "python": ("call", "calls", "isolation", "path"),
    "command": (
        "argv",
        "stdin",
        "output",
        "env",
        "cwd",
        "output_limit_bytes",
        "temporary_exit",
        "allow_payload_argv",
    ),
    "simulated": ("duration_s", "jitter", "fail", "cost_usd", "seed"),
    "openai": _MODEL_SERVER,
    "local": ("gguf", "context", "threads", "embeddings", "idle_s", "start_s", "timeouts", "defaults"),
    "agent": ("agent", "temporary_exit", "output_limit_bytes"),
    "researcher": (
        "python",
        "work_dir",
        "keep",
        "log_limit_bytes",
        "log_days",
        "output_limit_bytes",
        "report_type",
        "report_types",
        "report_source",
        "documents",
        "retriever",
        "retriever_url",
        "require_context",
        "private_urls",
        "url",
        "key_env",
        "key_file",
        "calls_lane",
        "fast_model",
        "smart_model",
        "strategic_model",
        "embedding_model",
        "env",
        "pass_env",
    ),
    "file_prompt": (*_MODEL_SERVER, "calls_lane", "root", "max_file_bytes"),
}
# Who reads the options of a type, `module:function`: it stands above us, and is loaded only for the types in use.
READERS = {
    "agent": "penstock.hosts.type_options:read_agent",
    "command": "penstock.hosts.type_options:read_command",
    "file_prompt": "penstock.hosts.type_options:read_file_prompt",
    "local": "penstock.hosts.type_options:read_local",
    "openai": "penstock.hosts.model_options:read_options",
    "python": "penstock.hosts.type_options:read_python",
    "researcher": "penstock.hosts.researcher_options:read_options",
    "simulated": "penstock.hosts.type_options:read_simulated",
}
FILE_FIELDS = ("instructions", "file_a", "document", "file_b")  # of a payload for file_prompt
# Relative to the config, wherever the dispatcher is started.
FOLDER_OPTIONS = ("ca_file", "cwd", "documents", "gguf", "key_file", "path", "root", "work_dir")
_TYPES = ("agent", "command", "file_prompt", "local", "openai", "python", "researcher", "simulated")
AVAILABLE: HostTypes = {name: OPTIONS[name] for name in _TYPES}

# A secret in a file ends up in a repository, a backup or a bug report.
SECRETS = frozenset({"access_token", "api-key", "api_key", "apikey", "key", "password", "secret", "token"})
SECRET_WORDS = frozenset({"apikey", "credentials", "key", "passwd", "password", "secret", "token"})

PSUTIL_PROBES = ("cpu_percent", "disk_free_gb", "load1", "memory_free_gb", "memory_percent")
NVML_PROBES = (
    "memory_free_gb",
    "memory_percent",
    "memory_used_gb",
    "power_w",
    "temperature_c",
    "utilization_percent",
)
PROBE_SCHEMES = ("nvml", "prometheus", "psutil", "python")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")  # of the environment
OWN_VARIABLES = "PENSTOCK_AGENT_"  # what those of ours begin with inside a container
COMMAND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")  # of an agent
COMMAND_RULE = "letters, digits, '_', '.' and '-', at most 128, first a letter, digit or '_'"
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,511}")
CAPABILITY = re.compile(r"[A-Z][A-Z0-9_]{1,63}")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")  # of a run, or of a task within its run
ID_RULE = "letters, digits, '_', '.' and '-', at most 128, first a letter or digit"
TASK_ID = re.compile(
    rf"{ID.pattern}(?::{ID.pattern})?"
)  # of a task in the store: one of its own, or RUN:NAME
NAME_RULE = "letters, digits, '_', '.' and '-', at most 64, first a letter or digit"


class Bounds(NamedTuple):
    """What a number may be. With `above` the low end itself is not allowed."""

    low: float
    high: float
    above: bool = False

    def hold(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        start = f"above {shown(self.low)}" if self.above else f"from {shown(self.low)}"
        return f"{start} {'and at most' if self.above else 'to'} {shown(self.high)}"


SECONDS = Bounds(0, 1e9, above=True)
DELAY = Bounds(0, 1e9)
DAYS = Bounds(0, 1e6, above=True)
COUNT = Bounds(1, 1_000_000)
COUNT_OR_NONE = Bounds(0, 1_000_000)
AMOUNT = Bounds(0, 1e15, above=True)
PER_MINUTE = Bounds(1, 1e12)
MONEY = Bounds(0, 1e9)
ANY = Bounds(-1e15, 1e15)
BYTES = Bounds(1, 1_000_000_000)
HEARTBEAT = Bounds(0.05, 3600)
SAMPLING = Bounds(0.05, 86_400)

PORT = Bounds(0, 65_535)

CPUS = Bounds(0.01, 4096)
CPUS_OR_NONE = Bounds(0, 4096)
MEGABYTES = Bounds(4, 1e9)
TMP_MB = Bounds(1, 1e6)
PIDS = Bounds(0, 4_194_304)  # 0: as many as there are
AGENT_PORT = Bounds(1, 65_535)
CONTAINERS = Bounds(1, 1000)
PAUSED = Bounds(0, 1000)

TEMPERATURE = Bounds(0, 2)
TOKENS_HELD = Bounds(1, 1e8)
WEIGHT = Bounds(0, 1000, above=True)
PERCENT = Bounds(0, 100)
SHARE = Bounds(0, 1)
PASSAGES = Bounds(1, 20)
CHUNK_WORDS = Bounds(20, 10_000)
OVERLAP_WORDS = Bounds(0, 9_999)
QUESTIONS = Bounds(1, 10_000)
SPENT = Bounds(0, 1e9, above=True)

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_HOSTS = 10_000
MAX_LANES = 10_000
MAX_GATES = 1_000
MAX_UNITS = 32
MAX_SERVES = 10_000
MAX_TEXT = 4096
MAX_MODEL = 256
MAX_MODELS = 10_000
MAX_ORIGINS = 100
MAX_PATTERNS = 1_000
MAX_AGENTS = 1_000
MAX_MANIFEST_BYTES = 256 * 1024
MAX_MOUNTS = 100
MAX_WORDS = 1_000  # of one argv
MAX_WORD = 131_072  # what the kernel takes as one
MAX_VARIABLES = 1_000
MAX_COUNCILS = 32
MAX_MEMBERS = 32
MAX_COUNCIL_NAME = 56  # with what goes before it, it is the name of a host and of a kind
MAX_MEMBER_NAME = 64
MAX_EMOJI = 16
MAX_ROLE = 256
MAX_PERSONA = 20_000
MAX_RISK_WORDS = 200
MAX_RUBRIC = 12
MAX_RUBRIC_WORD = 48

TOLERANCE = 1e-9  # units are fractions: 0.1 + 0.2 must fit into 0.3
TOKENS = "tokens"  # a need that is counted against a host's rate, never held


def is_callable_path(text: str) -> bool:
    """package.module:function"""
    module, colon, function = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *function.split(".")))


def shown(number: float) -> str:
    """A number as people write it."""
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, int):
        return str(number) if abs(number) < 10**18 else "a huge number"
    return str(int(number)) if number.is_integer() and abs(number) < 1e18 else repr(number)


def _under(prefix: str, keys: Iterable[str]) -> list[str]:
    return [f"{prefix}.{key}" for key in keys]


def _documented() -> tuple[str, ...]:
    host = "hosts.NAME"
    options = {option for known in AVAILABLE.values() for option in known or ()}
    tables = (
        "retry",
        "hosts",
        "lanes",
        "gates",
        "server",
        "models",
        "prices",
        "telemetry",
        "beads",
        "agents",
        "councils",
        "engine",
    )
    return tuple(
        [key for key in TOP if key not in tables]
        + _under("retry", RETRY)
        + _under(host, HOST)
        + _under(f"{host}.slots", SLOTS)
        + _under(f"{host}.rate", RATE)
        + _under(f"{host}.fallback", FALLBACK)
        + _under(f"{host}.breaker", BREAKER)
        + _under(f"{host}.ray", RAY)
        + _under(host, sorted(options))
        + _under("lanes.NAME", LANE)
        + _under("gates.NAME", GATE)
        + _under("gates.NAME.holds", HOLDS)
        + _under("server", SERVER)
        + ["models.NAME"]
        + _under("prices.NAME", PRICE)
        + _under("telemetry", TELEMETRY)
        + _under("beads", BEADS)
        + _under("agents.NAME", AGENT)
        + _under("agents.NAME.limits", AGENT_LIMITS)
        + _under("agents.NAME.mounts", MOUNT)
        + _under("councils.NAME", COUNCIL)
        + _under("councils.NAME.members", MEMBER)
        + _under("councils.NAME.retrieval", RETRIEVAL)
        + _under("councils.NAME.quick", QUICK)
        + _under("councils.NAME.limits.MODE", MODE_LIMITS)
        + _under("engine", ENGINE)
    )


# Every key path of the file, NAME standing for a name of the user's.
KEYS = _documented()
