CREATE FUNCTION public.audit_refuse() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'the audit is append-only'; END $$;
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.amendments (
    intent_id character varying NOT NULL,
    version integer NOT NULL,
    body json NOT NULL
);
CREATE TABLE public.answers (
    owner character varying NOT NULL,
    key character varying NOT NULL,
    digest character varying NOT NULL,
    created_s double precision NOT NULL,
    status integer,
    content_type character varying,
    location character varying,
    body bytea
);
CREATE TABLE public.approvals (
    plan_id character varying NOT NULL,
    digest character varying NOT NULL,
    verdict character varying NOT NULL,
    by character varying NOT NULL,
    role character varying NOT NULL,
    at_s double precision NOT NULL,
    until_s double precision,
    acknowledged json NOT NULL,
    note character varying NOT NULL
);
CREATE TABLE public.attainments (
    model character varying NOT NULL,
    intent_id character varying NOT NULL,
    words character varying NOT NULL,
    "window" character varying NOT NULL,
    hour_s double precision NOT NULL,
    counted character varying NOT NULL,
    needed double precision NOT NULL,
    met integer NOT NULL,
    total integer NOT NULL
);
CREATE TABLE public.audit (
    seq integer NOT NULL,
    at_s double precision NOT NULL,
    before json NOT NULL,
    after json NOT NULL,
    who character varying NOT NULL,
    key character varying NOT NULL,
    role character varying NOT NULL,
    act character varying NOT NULL,
    subject character varying NOT NULL,
    origin character varying NOT NULL,
    request_id character varying NOT NULL,
    previous character varying NOT NULL,
    hash character varying NOT NULL
);
CREATE TABLE public.audit_head (
    id integer NOT NULL,
    seq integer NOT NULL,
    hash character varying NOT NULL
);
CREATE TABLE public.control (
    id integer NOT NULL,
    mode character varying NOT NULL,
    paused boolean NOT NULL,
    resumed_s double precision NOT NULL
);
CREATE TABLE public.events (
    id integer NOT NULL,
    event character varying NOT NULL,
    data json NOT NULL,
    at_s double precision NOT NULL
);
CREATE SEQUENCE public.events_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.events_id_seq OWNED BY public.events.id;
CREATE TABLE public.generations (
    id integer NOT NULL,
    topology character varying NOT NULL,
    at_s double precision NOT NULL,
    model character varying,
    operation_id character varying
);
CREATE SEQUENCE public.generations_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.generations_id_seq OWNED BY public.generations.id;
CREATE TABLE public.intents (
    id character varying NOT NULL,
    document json NOT NULL,
    created_s double precision NOT NULL,
    said_by character varying
);
CREATE TABLE public.journal (
    id integer NOT NULL,
    switch_id character varying NOT NULL,
    phase character varying NOT NULL,
    detail character varying NOT NULL,
    at_s double precision NOT NULL
);
CREATE SEQUENCE public.journal_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.journal_id_seq OWNED BY public.journal.id;
CREATE TABLE public.keys (
    prefix character varying NOT NULL,
    digest character varying NOT NULL,
    name character varying NOT NULL,
    role character varying NOT NULL,
    tenant character varying,
    created_s double precision NOT NULL,
    created_by character varying NOT NULL,
    expires_s double precision,
    revoked_s double precision
);
CREATE TABLE public.loads (
    model character varying NOT NULL,
    begins_s double precision NOT NULL,
    document json NOT NULL
);
CREATE TABLE public.operations (
    id character varying NOT NULL,
    done boolean NOT NULL,
    document json NOT NULL,
    updated_s double precision NOT NULL,
    model character varying,
    created_s double precision NOT NULL
);
CREATE TABLE public.outcomes (
    operation_id character varying NOT NULL,
    at_s double precision NOT NULL,
    document json NOT NULL
);
CREATE TABLE public.plans (
    id character varying NOT NULL,
    intent_id character varying NOT NULL,
    document json NOT NULL,
    applied_by character varying,
    created_s double precision NOT NULL,
    model character varying
);
CREATE TABLE public.promises (
    intent_id character varying NOT NULL,
    state character varying NOT NULL,
    document json NOT NULL,
    activated_s double precision NOT NULL
);
ALTER TABLE ONLY public.events ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);
ALTER TABLE ONLY public.generations ALTER COLUMN id SET DEFAULT nextval('public.generations_id_seq'::regclass);
ALTER TABLE ONLY public.journal ALTER COLUMN id SET DEFAULT nextval('public.journal_id_seq'::regclass);
INSERT INTO public.alembic_version (version_num) VALUES ('0007');
INSERT INTO public.amendments (intent_id, version, body) VALUES ('intent-2', 7, '{"kept": "body"}');
INSERT INTO public.answers (owner, key, digest, created_s, status, content_type, location, body) VALUES ('kept owner', 'kept key', 'kept digest', 7.5, 7, 'kept content_type', 'kept location', '\x6b657074');
INSERT INTO public.approvals (plan_id, digest, verdict, by, role, at_s, until_s, acknowledged, note) VALUES ('kept plan_id', 'kept digest', 'kept verdict', 'kept by', 'kept role', 7.5, 7.5, '{"kept": "acknowledged"}', 'kept note');
INSERT INTO public.attainments (model, intent_id, words, "window", hour_s, counted, needed, met, total) VALUES ('kept model', 'kept intent_id', 'kept words', 'kept window', 7.5, 'kept counted', 7.5, 7, 7);
INSERT INTO public.audit (seq, at_s, before, after, who, key, role, act, subject, origin, request_id, previous, hash) VALUES (7, 7.5, '{"kept": "before"}', '{"kept": "after"}', 'kept who', 'kept key', 'kept role', 'kept act', 'kept subject', 'kept origin', 'kept request_id', 'kept previous', 'kept hash');
INSERT INTO public.audit_head (id, seq, hash) VALUES (1, 0, '');
INSERT INTO public.control (id, mode, paused, resumed_s) VALUES (1, 'kept mode', true, 7.5);
INSERT INTO public.events (id, event, data, at_s) VALUES (7, 'kept event', '{"kept": "data"}', 7.5);
INSERT INTO public.generations (id, topology, at_s, model, operation_id) VALUES (1, 'cpu[0]:0-8@fp32', 4, 'counting', 'op-1');
INSERT INTO public.intents (id, document, created_s, said_by) VALUES ('intent-1', '{"apiVersion": "intentctl/v1", "kind": "Intent", "text": "TTFT < 2s", "language": "en", "outcome": "ok", "goals": [{"type": "objective", "metric": "ttft", "op": "<=", "evidence": "TTFT < 2s", "stat": "p99", "value": 2.0, "unit": "s", "window": "always", "tenant": null, "model": null, "soft": false}], "windows": {}, "assumptions": [], "set_aside": [], "expectations": [], "questions": [], "findings": [], "readback": "", "translator": {"name": "rules", "model": null, "prompt_version": null, "prompt_hash": null, "schema_version": "intentctl/v1", "reason": null}}', 1, NULL);
INSERT INTO public.intents (id, document, created_s, said_by) VALUES ('intent-2', '{"apiVersion": "intentctl/v1", "kind": "Intent", "text": "TTFT < 2s", "language": "en", "outcome": "ok", "goals": [{"type": "objective", "metric": "ttft", "op": "<=", "evidence": "TTFT < 2s", "stat": "p99", "value": 2.0, "unit": "s", "window": "always", "tenant": null, "model": null, "soft": false}], "windows": {}, "assumptions": [], "set_aside": [], "expectations": [], "questions": [], "findings": [], "readback": "", "translator": {"name": "rules", "model": null, "prompt_version": null, "prompt_hash": null, "schema_version": "intentctl/v1", "reason": null}}', 6, NULL);
INSERT INTO public.journal (id, switch_id, phase, detail, at_s) VALUES (1, 'op-1', 'warming', 'epoch 1', 3);
INSERT INTO public.keys (prefix, digest, name, role, tenant, created_s, created_by, expires_s, revoked_s) VALUES ('kept prefix', 'kept digest', 'kept name', 'kept role', 'kept tenant', 7.5, 'kept created_by', 7.5, 7.5);
INSERT INTO public.loads (model, begins_s, document) VALUES ('kept model', 7.5, '{"kept": "document"}');
INSERT INTO public.operations (id, done, document, updated_s, model, created_s) VALUES ('op-1', true, '{"id":"op-1","plan_id":"plan-1","model":"counting","source":"cpu[0]:0-4@fp32 > cpu[1]:4-8@fp32","target":"cpu[0]:0-8@fp32","applied_by":null,"approved_by":null,"progress":{"copied_bytes":0,"lag":{"bytes":0,"tokens":0}},"phases":[{"phase":"planned","at":1.0},{"phase":"done","at":9.0}],"result":{"switch_id":"op-1","source":"cpu[0]:0-4@fp32 > cpu[1]:4-8@fp32","target":"cpu[0]:0-8@fp32","phase":"done","reason":null,"detail":"","epoch":0,"prepare_s":0.0,"warming_s":0.0,"syncing_s":0.0,"held_s":0.0,"bytes_before":0,"bytes_inside":0,"moved":0,"left_to_drain":0,"stays":{},"tokens_recomputed":0,"paths":{},"timings":{"drain_ms":0.0,"patch_ms":0.0,"commit_ms":0.0,"first_step_ms":0.0}},"done":true,"phase":"done"}', 9, 'counting', 1);
INSERT INTO public.outcomes (operation_id, at_s, document) VALUES ('kept operation_id', 7.5, '{"kept": "document"}');
INSERT INTO public.plans (id, intent_id, document, applied_by, created_s, model) VALUES ('plan-1', 'intent-1', '{"id":"plan-1","intent_id":"intent-1","intent_version":null,"generation":4,"model":"counting","window":"always","kind":"promise","now":{"text":"cpu[0]:0-4@fp32 > cpu[1]:4-8@fp32","shape":"PP2","devices":[0,1],"stages":[{"kind":"cpu","devices":[0],"layers":{"start":0,"end":4},"precision":{"weights":"fp32","activations":"fp32","kv":"fp32"},"overrides":[]},{"kind":"cpu","devices":[1],"layers":{"start":4,"end":8},"precision":{"weights":"fp32","activations":"fp32","kv":"fp32"},"overrides":[]}]},"target":{"text":"cpu[0]:0-8@fp32","shape":"1x1","devices":[0],"stages":[{"kind":"cpu","devices":[0],"layers":{"start":0,"end":8},"precision":{"weights":"fp32","activations":"fp32","kv":"fp32"},"overrides":[]}]},"replicas":[],"prediction":{"ttft_s":{"mean":0.1,"p99":0.2},"tpot_s":{"mean":0.01,"p99":0.02},"e2e_s":{"mean":1.0,"p99":2.0},"throughput_tok_s":100.0,"gpu_util":0.5,"usd_per_hour":0.0,"batch":8,"quality_loss":0.0,"error_band":0.3,"source":"calibrated","devices":1,"replicas":1,"simulated":[]},"now_prediction":null,"runner_up":null,"reasons":["it is the only one"],"margins":[],"rules":[],"left_out":[],"offers":[],"considered":0,"switch":null,"certificate":[],"bytes_to_move":{},"to_acknowledge":[],"digest":"","changes":true}', NULL, 2, 'counting');
INSERT INTO public.promises (intent_id, state, document, activated_s) VALUES ('kept intent_id', 'kept state', '{"kept": "document"}', 7.5);
SELECT pg_catalog.setval('public.events_id_seq', 1, false);
SELECT pg_catalog.setval('public.generations_id_seq', 1, true);
SELECT pg_catalog.setval('public.journal_id_seq', 1, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.amendments
    ADD CONSTRAINT amendments_pkey PRIMARY KEY (intent_id, version);
ALTER TABLE ONLY public.answers
    ADD CONSTRAINT answers_pkey PRIMARY KEY (owner, key);
ALTER TABLE ONLY public.approvals
    ADD CONSTRAINT approvals_pkey PRIMARY KEY (plan_id);
ALTER TABLE ONLY public.attainments
    ADD CONSTRAINT attainments_pkey PRIMARY KEY (model, intent_id, words, "window", hour_s);
ALTER TABLE ONLY public.audit_head
    ADD CONSTRAINT audit_head_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.control
    ADD CONSTRAINT control_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.generations
    ADD CONSTRAINT generations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.intents
    ADD CONSTRAINT intents_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (prefix);
ALTER TABLE ONLY public.loads
    ADD CONSTRAINT loads_pkey PRIMARY KEY (model, begins_s);
ALTER TABLE ONLY public.operations
    ADD CONSTRAINT operations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.outcomes
    ADD CONSTRAINT outcomes_pkey PRIMARY KEY (operation_id);
ALTER TABLE ONLY public.plans
    ADD CONSTRAINT plans_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.promises
    ADD CONSTRAINT promises_pkey PRIMARY KEY (intent_id);
CREATE INDEX ix_answers_created_s ON public.answers USING btree (created_s);
CREATE INDEX ix_approvals_at_s_plan_id ON public.approvals USING btree (at_s, plan_id);
CREATE INDEX ix_audit_act ON public.audit USING btree (act);
CREATE INDEX ix_audit_subject ON public.audit USING btree (subject);
CREATE INDEX ix_audit_who ON public.audit USING btree (who);
CREATE INDEX ix_intents_created_s_id ON public.intents USING btree (created_s, id);
CREATE INDEX ix_journal_switch_id ON public.journal USING btree (switch_id);
CREATE INDEX ix_operations_created_s_id ON public.operations USING btree (created_s, id);
CREATE INDEX ix_outcomes_at_s ON public.outcomes USING btree (at_s);
CREATE INDEX ix_plans_created_s_id ON public.plans USING btree (created_s, id);
CREATE INDEX ix_plans_intent_id ON public.plans USING btree (intent_id);
CREATE TRIGGER audit_no_change BEFORE DELETE OR UPDATE ON public.audit FOR EACH ROW EXECUTE FUNCTION public.audit_refuse();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON public.audit FOR EACH STATEMENT EXECUTE FUNCTION public.audit_refuse();
ALTER TABLE ONLY public.amendments
    ADD CONSTRAINT amendments_intent_id_fkey FOREIGN KEY (intent_id) REFERENCES public.intents(id);
ALTER TABLE ONLY public.plans
    ADD CONSTRAINT plans_intent_id_fkey FOREIGN KEY (intent_id) REFERENCES public.intents(id);
