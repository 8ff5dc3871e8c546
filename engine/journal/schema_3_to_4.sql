-- What schema 3 said only in words becomes columns; migrations.py does the rest, which was JSON.
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
ALTER TABLE campaigns ADD COLUMN doubt TEXT NOT NULL DEFAULT '';
ALTER TABLE slots ADD COLUMN option TEXT NOT NULL DEFAULT '';
ALTER TABLE slots ADD COLUMN knobs TEXT NOT NULL DEFAULT '[]';
ALTER TABLE slots ADD COLUMN idea TEXT NOT NULL DEFAULT '';
ALTER TABLE slots ADD COLUMN limiter TEXT NOT NULL DEFAULT '';
ALTER TABLE slots ADD COLUMN config_class TEXT NOT NULL DEFAULT '';
ALTER TABLE candidates ADD COLUMN form_of TEXT NOT NULL DEFAULT '';
ALTER TABLE candidates ADD COLUMN left_out TEXT NOT NULL DEFAULT '';
ALTER TABLE candidates ADD COLUMN cut TEXT NOT NULL DEFAULT '';
ALTER TABLE candidates ADD COLUMN scope TEXT NOT NULL DEFAULT '';
ALTER TABLE decisions ADD COLUMN is_fault INTEGER NOT NULL DEFAULT 0;

UPDATE decisions SET is_fault = 1 WHERE kind = 'reject'
    AND (reason LIKE 'could not be judged%' OR reason LIKE 'could not be kept%');

UPDATE campaigns SET doubt = 'the best was not accepted: it has no verdict against the baseline'
    WHERE instr(reason, 'the best was not accepted: it has no verdict against the baseline');
UPDATE campaigns SET reason = replace(replace(reason, '; ' || doubt, ''), doubt, '')
    WHERE doubt != '';

-- a bottleneck's id is the first word of the text that slots have of it
UPDATE slots SET (limiter, config_class) = (
        SELECT limiter, config_class FROM bottlenecks AS own WHERE own.campaign = slots.campaign
        AND own.round = slots.round
        AND own.id = substr(slots.bottleneck, 1, instr(slots.bottleneck || ' ', ' ') - 1))
    WHERE EXISTS (
        SELECT 1 FROM bottlenecks AS own WHERE own.campaign = slots.campaign
        AND own.round = slots.round
        AND own.id = substr(slots.bottleneck, 1, instr(slots.bottleneck || ' ', ' ') - 1));

-- "A and B against LIMITER": the knobs of a search
UPDATE slots SET knobs = '["' || replace(
        substr(hypothesis, 1, instr(hypothesis, ' against ') - 1), ' and ', '", "') || '"]'
    WHERE backend = 'search' AND kind = 'planned' AND instr(hypothesis, ' against ');

UPDATE slots SET option = CASE WHEN substr(hypothesis, 1, 11) = 'handed in: '
        THEN substr(hypothesis, 12) ELSE hypothesis END
    WHERE backend = 'inbox';
UPDATE slots SET option = substr(hypothesis, 1, instr(hypothesis || ': ', ': ') - 1)
    WHERE backend = 'cli';

-- the ideas of stagnation reviews, in the words of a hypothesis, and their keys
CREATE TEMP TABLE ideas (words TEXT NOT NULL, idea TEXT NOT NULL);
INSERT INTO temp.ideas VALUES
    ('another blocking of the loops, so that what is read twice stays close', 'blocking'),
    ('another layout or order of access, so that memory moves in long runs', 'layout'),
    ('loads ahead of the arithmetic that needs them', 'prefetch'),
    ('less work: fuse what follows, skip what is not needed', 'less-work'),
    ('another split of the work over threads, blocks or processing units', 'work-split'),
    ('wider loads, stores and vector or matrix instructions', 'wide-instructions'),
    ('fewer registers, so that more is in flight, or more work for each thread', 'registers'),
    ('independent instructions between a load and its wait, and around barriers', 'latency-hiding'),
    ('fewer address computations, conversions and branches in the innermost loop', 'inner-loop'),
    ('several sums at once, as many as the unit''s latency asks for', 'accumulators'),
    ('the form that the vendor''s own library has of this op', 'vendor-form'),
    ('the fastest published kernel of this op, and the schedule it uses', 'published-form'),
    ('another algorithm that moves or computes less', 'algorithm'),
    ('a kernel of its own for each config class, behind a dispatch', 'class-kernels'),
    ('the whole op rewritten from nothing for this card''s newest instructions', 'rewrite');
UPDATE slots SET idea = COALESCE(
        (SELECT own.idea FROM temp.ideas AS own WHERE instr(slots.hypothesis, own.words)
         ORDER BY own.rowid LIMIT 1), '')
    WHERE backend = 'cli';
DROP TABLE temp.ideas;
