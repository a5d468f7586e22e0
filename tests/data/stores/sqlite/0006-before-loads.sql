BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0006');
CREATE TABLE amendments (intent_id VARCHAR NOT NULL, version INTEGER NOT NULL, body JSON NOT NULL,
    PRIMARY KEY (intent_id, version), FOREIGN KEY(intent_id) REFERENCES intents (id));
INSERT INTO "amendments" VALUES('intent-2',7,'{"kept": "body"}');
CREATE TABLE answers (
	owner VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	created_s DOUBLE NOT NULL, 
	status INTEGER, 
	content_type VARCHAR, 
	location VARCHAR, 
	body BLOB, 
	PRIMARY KEY (owner, "key")
);
INSERT INTO "answers" VALUES('kept owner','kept key','kept digest',7.5,7,'kept content_type','kept location',X'6B657074');
CREATE TABLE approvals (
	plan_id VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	verdict VARCHAR NOT NULL, 
	"by" VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	at_s DOUBLE NOT NULL, 
	until_s DOUBLE, 
	acknowledged JSON NOT NULL, 
	note VARCHAR NOT NULL, 
	PRIMARY KEY (plan_id)
);
INSERT INTO "approvals" VALUES('kept plan_id','kept digest','kept verdict','kept by','kept role',7.5,7.5,'{"kept": "acknowledged"}','kept note');
CREATE TABLE attainments (
	model VARCHAR NOT NULL, 
	intent_id VARCHAR NOT NULL, 
	words VARCHAR NOT NULL, 
	window VARCHAR NOT NULL, 
	hour_s DOUBLE NOT NULL, 
	counted VARCHAR NOT NULL, 
	needed DOUBLE NOT NULL, 
	met INTEGER NOT NULL, 
	total INTEGER NOT NULL, 
	PRIMARY KEY (model, intent_id, words, window, hour_s)
);
INSERT INTO "attainments" VALUES('kept model','kept intent_id','kept words','kept window',7.5,'kept counted',7.5,7,7);
CREATE TABLE audit (
	seq INTEGER NOT NULL, 
	at_s DOUBLE NOT NULL, 
	"before" JSON NOT NULL, 
	"after" JSON NOT NULL, 
	who VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	act VARCHAR NOT NULL, 
	subject VARCHAR NOT NULL, 
	origin VARCHAR NOT NULL, 
	request_id VARCHAR NOT NULL, 
	previous VARCHAR NOT NULL, 
	hash VARCHAR NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "audit" VALUES(7,7.5,'{"kept": "before"}','{"kept": "after"}','kept who','kept key','kept role','kept act','kept subject','kept origin','kept request_id','kept previous','kept hash');
CREATE TABLE audit_head (
	id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	hash VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "audit_head" VALUES(1,0,'');
CREATE TABLE control (
	id INTEGER NOT NULL, 
	mode VARCHAR NOT NULL, 
	paused BOOLEAN NOT NULL, 
	resumed_s DOUBLE NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "control" VALUES(1,'kept mode',1,7.5);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	event VARCHAR NOT NULL, 
	data JSON NOT NULL, 
	at_s DOUBLE NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "events" VALUES(7,'kept event','{"kept": "data"}',7.5);
CREATE TABLE generations (id INTEGER NOT NULL, topology VARCHAR NOT NULL, at_s DOUBLE NOT NULL, model VARCHAR, operation_id VARCHAR, PRIMARY KEY (id));
INSERT INTO "generations" VALUES(1,'cpu[0]:0-8@fp32',4.0,'counting','op-1');
CREATE TABLE intents (id VARCHAR NOT NULL, document JSON NOT NULL, created_s DOUBLE NOT NULL, PRIMARY KEY (id));
INSERT INTO "intents" VALUES('intent-1','{"apiVersion": "intentctl/v1", "kind": "Intent", "text": "TTFT < 2s", "language": "en", "outcome": "ok", "goals": [{"type": "objective", "metric": "ttft", "op": "<=", "evidence": "TTFT < 2s", "stat": "p99", "value": 2.0, "unit": "s", "window": "always", "tenant": null, "model": null, "soft": false}], "windows": {}, "assumptions": [], "set_aside": [], "expectations": [], "questions": [], "findings": [], "readback": "", "translator": {"name": "rules", "model": null, "prompt_version": null, "prompt_hash": null, "schema_version": "intentctl/v1", "reason": null}}',1.0);
INSERT INTO "intents" VALUES('intent-2','{"apiVersion": "intentctl/v1", "kind": "Intent", "text": "TTFT < 2s", "language": "en", "outcome": "ok", "goals": [{"type": "objective", "metric": "ttft", "op": "<=", "evidence": "TTFT < 2s", "stat": "p99", "value": 2.0, "unit": "s", "window": "always", "tenant": null, "model": null, "soft": false}], "windows": {}, "assumptions": [], "set_aside": [], "expectations": [], "questions": [], "findings": [], "readback": "", "translator": {"name": "rules", "model": null, "prompt_version": null, "prompt_hash": null, "schema_version": "intentctl/v1", "reason": null}}',6.0);
CREATE TABLE journal (id INTEGER NOT NULL, switch_id VARCHAR NOT NULL, phase VARCHAR NOT NULL, detail VARCHAR NOT NULL,
    at_s DOUBLE NOT NULL, PRIMARY KEY (id));
INSERT INTO "journal" VALUES(1,'op-1','warming','epoch 1',3.0);
CREATE TABLE keys (
	prefix VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	role VARCHAR NOT NULL, 
	tenant VARCHAR, 
	created_s DOUBLE NOT NULL, 
	created_by VARCHAR NOT NULL, 
	expires_s DOUBLE, 
	revoked_s DOUBLE, 
	PRIMARY KEY (prefix)
);
INSERT INTO "keys" VALUES('kept prefix','kept digest','kept name','kept role','kept tenant',7.5,'kept created_by',7.5,7.5);
CREATE TABLE "operations" (
	id VARCHAR NOT NULL, 
	done BOOLEAN NOT NULL, 
	document JSON NOT NULL, 
	updated_s DOUBLE NOT NULL, 
	model VARCHAR, 
	created_s DOUBLE NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "operations" VALUES('op-1',1,'{"id":"op-1","plan_id":"plan-1","model":"counting","source":"cpu[0]:0-4@fp32 > cpu[1]:4-8@fp32","target":"cpu[0]:0-8@fp32","applied_by":null,"approved_by":null,"progress":{"copied_bytes":0,"lag":{"bytes":0,"tokens":0}},"phases":[{"phase":"planned","at":1.0},{"phase":"done","at":9.0}],"result":{"switch_id":"op-1","source":"cpu[0]:0-4@fp32 > cpu[1]:4-8@fp32","target":"cpu[0]:0-8@fp32","phase":"done","reason":null,"detail":"","epoch":0,"prepare_s":0.0,"warming_s":0.0,"syncing_s":0.0,"held_s":0.0,"bytes_before":0,"bytes_inside":0,"moved":0,"left_to_drain":0,"stays":{},"tokens_recomputed":0,"paths":{},"timings":{"drain_ms":0.0,"patch_ms":0.0,"commit_ms":0.0,"first_step_ms":0.0}},"done":true,"phase":"done"}',9.0,'counting',1.0);
CREATE TABLE outcomes (
	operation_id VARCHAR NOT NULL, 
	at_s DOUBLE NOT NULL, 
	document JSON NOT NULL, 
	PRIMARY KEY (operation_id)
);
INSERT INTO "outcomes" VALUES('kept operation_id',7.5,'{"kept": "document"}');
CREATE TABLE plans (id VARCHAR NOT NULL, intent_id VARCHAR NOT NULL, document JSON NOT NULL, applied_by VARCHAR,
    created_s DOUBLE NOT NULL, model VARCHAR, PRIMARY KEY (id), FOREIGN KEY(intent_id) REFERENCES intents (id));
INSERT INTO "plans" VALUES('plan-1','intent-1','{"id":"plan-1","intent_id":"intent-1","intent_version":null,"generation":4,"model":"counting","window":"always","kind":"promise","now":{"text":"cpu[0]:0-4@fp32 > cpu[1]:4-8@fp32","shape":"PP2","devices":[0,1],"stages":[{"kind":"cpu","devices":[0],"layers":{"start":0,"end":4},"precision":{"weights":"fp32","activations":"fp32","kv":"fp32"},"overrides":[]},{"kind":"cpu","devices":[1],"layers":{"start":4,"end":8},"precision":{"weights":"fp32","activations":"fp32","kv":"fp32"},"overrides":[]}]},"target":{"text":"cpu[0]:0-8@fp32","shape":"1x1","devices":[0],"stages":[{"kind":"cpu","devices":[0],"layers":{"start":0,"end":8},"precision":{"weights":"fp32","activations":"fp32","kv":"fp32"},"overrides":[]}]},"replicas":[],"prediction":{"ttft_s":{"mean":0.1,"p99":0.2},"tpot_s":{"mean":0.01,"p99":0.02},"e2e_s":{"mean":1.0,"p99":2.0},"throughput_tok_s":100.0,"gpu_util":0.5,"usd_per_hour":0.0,"batch":8,"quality_loss":0.0,"error_band":0.3,"source":"calibrated","devices":1,"replicas":1,"simulated":[]},"now_prediction":null,"runner_up":null,"reasons":["it is the only one"],"margins":[],"rules":[],"left_out":[],"offers":[],"considered":0,"switch":null,"certificate":[],"bytes_to_move":{},"to_acknowledge":[],"digest":"","changes":true}',NULL,2.0,'counting');
CREATE TABLE promises (
	intent_id VARCHAR NOT NULL, 
	state VARCHAR NOT NULL, 
	document JSON NOT NULL, 
	activated_s DOUBLE NOT NULL, 
	PRIMARY KEY (intent_id)
);
INSERT INTO "promises" VALUES('kept intent_id','kept state','{"kept": "document"}',7.5);
CREATE INDEX ix_journal_switch_id ON journal (switch_id);
CREATE INDEX ix_intents_created_s_id ON intents (created_s, id);
CREATE INDEX ix_plans_created_s_id ON plans (created_s, id);
CREATE INDEX ix_operations_created_s_id ON operations (created_s, id);
CREATE INDEX ix_audit_who ON audit (who);
CREATE INDEX ix_audit_act ON audit (act);
CREATE INDEX ix_audit_subject ON audit (subject);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END;
CREATE INDEX ix_answers_created_s ON answers (created_s);
CREATE INDEX ix_outcomes_at_s ON outcomes (at_s);
COMMIT;
