-- The journal's tables. A change needs a new SCHEMA_VERSION and its migration in migrations.py.
CREATE TABLE campaigns (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, op TEXT NOT NULL, backend TEXT NOT NULL,
    lang TEXT NOT NULL, gpu TEXT NOT NULL, device TEXT NOT NULL, project TEXT NOT NULL,
    base_commit TEXT NOT NULL, best_commit TEXT NOT NULL, state TEXT NOT NULL,
    phase TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
    round INTEGER NOT NULL DEFAULT 0, rounds_max INTEGER,
    speedup REAL, speedup_low REAL, speedup_high REAL,
    created_at REAL NOT NULL, updated_at REAL NOT NULL, doubt TEXT NOT NULL DEFAULT ''
);
CREATE TABLE leases (
    campaign TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, started REAL NOT NULL,
    epoch INTEGER NOT NULL, heartbeat REAL NOT NULL, answers_only INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE rounds (
    campaign TEXT NOT NULL, n INTEGER NOT NULL, scope TEXT NOT NULL, incumbent TEXT NOT NULL,
    started_at REAL NOT NULL, ended_at REAL, outcome TEXT, summary TEXT NOT NULL DEFAULT '',
    best_speedup REAL, spent_s REAL NOT NULL DEFAULT 0, trials INTEGER NOT NULL DEFAULT 0,
    cost REAL NOT NULL DEFAULT 0, PRIMARY KEY (campaign, n)
);
CREATE TABLE slots (
    campaign TEXT NOT NULL, round INTEGER NOT NULL, slot TEXT NOT NULL, kind TEXT NOT NULL,
    backend TEXT NOT NULL, hypothesis TEXT NOT NULL, bottleneck TEXT NOT NULL,
    device TEXT NOT NULL, stage TEXT NOT NULL, detail TEXT NOT NULL, progress REAL,
    candidate TEXT NOT NULL, started_at REAL, updated_at REAL NOT NULL,
    scope TEXT NOT NULL DEFAULT '', option TEXT NOT NULL DEFAULT '',
    knobs TEXT NOT NULL DEFAULT '[]', idea TEXT NOT NULL DEFAULT '',
    limiter TEXT NOT NULL DEFAULT '', config_class TEXT NOT NULL DEFAULT '',
    subagent TEXT NOT NULL DEFAULT '', agent TEXT, PRIMARY KEY (campaign, round, slot)
);
CREATE TABLE candidates (
    campaign TEXT NOT NULL, id TEXT NOT NULL, round INTEGER NOT NULL, slot TEXT NOT NULL,
    base_commit TEXT NOT NULL, base_tree TEXT NOT NULL, patch_path TEXT NOT NULL,
    patch_sha256 TEXT NOT NULL, hypothesis TEXT NOT NULL, bottleneck TEXT NOT NULL,
    state TEXT NOT NULL, created_at REAL NOT NULL, "commit" TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '', form_of TEXT NOT NULL DEFAULT '',
    left_out TEXT NOT NULL DEFAULT '', cut TEXT NOT NULL DEFAULT '',
    scope TEXT NOT NULL DEFAULT '', PRIMARY KEY (campaign, id)
);
CREATE TABLE tasks (
    campaign TEXT NOT NULL, candidate TEXT NOT NULL, task TEXT NOT NULL,
    PRIMARY KEY (campaign, candidate)
);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY AUTOINCREMENT, campaign TEXT NOT NULL, round INTEGER NOT NULL,
    slot TEXT NOT NULL, number INTEGER NOT NULL, config TEXT NOT NULL, tag TEXT NOT NULL,
    correctness TEXT NOT NULL, latency_us REAL, latency_kind TEXT, pct_of_roofline REAL,
    candidate_id TEXT NOT NULL, kernel_id TEXT NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX trials_campaign ON trials (campaign, id);
CREATE TABLE model_costs (
    campaign TEXT NOT NULL, round INTEGER NOT NULL, slot TEXT NOT NULL,
    attempt INTEGER NOT NULL, model TEXT NOT NULL, steps INTEGER NOT NULL,
    unpriced INTEGER NOT NULL, cost_usd REAL NOT NULL, tokens_read INTEGER NOT NULL,
    tokens_written INTEGER NOT NULL, PRIMARY KEY (campaign, round, slot, attempt, model)
);
CREATE TABLE verdicts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, campaign TEXT NOT NULL, candidate TEXT NOT NULL,
    purpose TEXT NOT NULL, incumbent_tree TEXT NOT NULL, harness_version TEXT NOT NULL,
    valid INTEGER NOT NULL, correct INTEGER NOT NULL, latency_us REAL, speedup REAL,
    low REAL, high REAL, body BLOB NOT NULL, at REAL NOT NULL,
    UNIQUE (campaign, candidate, purpose, incumbent_tree, harness_version)
);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, campaign TEXT NOT NULL, candidate TEXT NOT NULL,
    verdict INTEGER, round INTEGER NOT NULL, kind TEXT NOT NULL, reason TEXT NOT NULL,
    actor TEXT NOT NULL, "commit" TEXT NOT NULL DEFAULT '', at REAL NOT NULL,
    is_fault INTEGER NOT NULL DEFAULT 0, near_gain REAL,
    is_rejection INTEGER NOT NULL DEFAULT 0, doubts TEXT NOT NULL DEFAULT ''
);
CREATE TABLE bottlenecks (
    campaign TEXT NOT NULL, round INTEGER NOT NULL, rank INTEGER NOT NULL, id TEXT NOT NULL,
    kernel TEXT NOT NULL, config_class TEXT NOT NULL, limiter TEXT NOT NULL,
    metric TEXT NOT NULL, value REAL, detail TEXT NOT NULL, advice TEXT NOT NULL,
    PRIMARY KEY (campaign, round, rank)
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, campaign TEXT NOT NULL, at REAL NOT NULL,
    kind TEXT NOT NULL, ref TEXT NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE controls (
    id INTEGER PRIMARY KEY AUTOINCREMENT, campaign TEXT NOT NULL, verb TEXT NOT NULL,
    candidate TEXT NOT NULL DEFAULT '', expected_base TEXT NOT NULL DEFAULT '',
    expected_verdict INTEGER, by TEXT NOT NULL, at REAL NOT NULL, applied_at REAL,
    outcome TEXT NOT NULL DEFAULT ''
);
CREATE INDEX events_campaign ON events (campaign, seq);
CREATE INDEX candidates_state ON candidates (campaign, state);
CREATE INDEX verdicts_campaign ON verdicts (campaign, id);
CREATE INDEX decisions_campaign ON decisions (campaign, id);
CREATE INDEX controls_open ON controls (campaign, id) WHERE applied_at IS NULL;
