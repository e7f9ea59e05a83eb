CREATE TABLE agentstore_schema (
  version int NOT NULL,                      -- how many migrations were made
  oldest int NOT NULL                        -- releases that know at least so many work with it
);
CREATE TABLE agentstore_session (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  hash bytea NOT NULL,                       -- SessionKey.hash
  linked boolean NOT NULL,                   -- false: expired and replaced, or staged by a restore
  namespace bytea NOT NULL, source bytea NOT NULL, session bytea NOT NULL,   -- UTF-8: text refuses NUL
  last_seq bigint NOT NULL DEFAULT 0, count bigint NOT NULL DEFAULT 0, bytes bigint NOT NULL DEFAULT 0,
  calls bigint NOT NULL DEFAULT 0,
  answers bytea NOT NULL DEFAULT '',         -- to the last 32 appends, 36 bytes each
  snapshot_version bigint NOT NULL DEFAULT 0, snapshot_format text,
  created_at bigint NOT NULL, updated_at bigint NOT NULL, minute bigint NOT NULL, expires_at bigint
) WITH (fillfactor = 50);                     -- room for the next version of a row, so that no index is touched
ALTER TABLE agentstore_session ALTER answers SET STORAGE PLAIN;
CREATE UNIQUE INDEX agentstore_session_linked ON agentstore_session (hash) WHERE linked;
CREATE INDEX agentstore_session_unlinked ON agentstore_session (hash) WHERE NOT linked;
CREATE INDEX agentstore_session_by_activity
  ON agentstore_session (sha256(namespace), minute DESC, source, session) WHERE linked;
CREATE TABLE agentstore_message (
  session bigint NOT NULL, seq bigint NOT NULL, created_at bigint NOT NULL,
  id_hash bytea NOT NULL, digest bytea NOT NULL, format text NOT NULL, payload bytea NOT NULL,
  PRIMARY KEY (session, seq), UNIQUE (session, id_hash));
CREATE TABLE agentstore_answer (             -- of appends that found a part of their records: the others' count up
  session bigint, slot int, seqs bigint[] NOT NULL, PRIMARY KEY (session, slot));
CREATE TABLE agentstore_snapshot (session bigint PRIMARY KEY, payload bytea NOT NULL);
CREATE TABLE agentstore_metadata (session bigint PRIMARY KEY, payload bytea NOT NULL);
