CREATE FUNCTION agentstore_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- The living session, its row locked until commit; a row of nulls where there is none.
CREATE FUNCTION agentstore_lock(p_hash bytea) RETURNS agentstore_session LANGUAGE plpgsql AS $$
DECLARE s agentstore_session;
BEGIN
  SELECT * INTO s FROM agentstore_session WHERE hash = p_hash AND linked FOR NO KEY UPDATE;
  IF s.expires_at <= agentstore_now() THEN s := NULL; END IF;      -- after the lock: the wait may have been long
  RETURN s;
END $$;

-- The same; where there is none, a new one. An expired predecessor is unlinked: O(1), its rows are purge's work.
CREATE FUNCTION agentstore_begin(p_hash bytea, p_namespace bytea, p_source bytea, p_session bytea, p_ttl bigint)
RETURNS agentstore_session LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; now_us bigint;
BEGIN
  LOOP
    s := agentstore_lock(p_hash);
    IF s.id IS NOT NULL THEN RETURN s; END IF;
    now_us := agentstore_now();
    UPDATE agentstore_session SET linked = false WHERE hash = p_hash AND linked AND expires_at <= now_us;
    INSERT INTO agentstore_session
      (hash, linked, namespace, source, session, created_at, updated_at, minute, expires_at)
    VALUES (p_hash, true, p_namespace, p_source, p_session, now_us, now_us, now_us / 60000000, now_us + p_ttl)
    ON CONFLICT (hash) WHERE linked DO NOTHING RETURNING * INTO s;
    IF s.id IS NOT NULL THEN RETURN s; END IF;        -- else another writer began it: the next look sees it
  END LOOP;
END $$;

-- A record's head is its id hash and its digest, 16 bytes each: one array less to send and to take apart.

-- Of a batch that is in the session now: the seqs, and which records are there with another digest.
CREATE FUNCTION agentstore_found(
  p_session bigint, p_heads bytea[], OUT seqs bigint[], OUT positions int[]) LANGUAGE sql AS $$
  SELECT array_agg(f.seq ORDER BY f.at), array_agg((f.at - 1)::int ORDER BY f.at) FILTER (WHERE NOT f.same)
  FROM (SELECT u.at, m.seq, m.digest = substr(u.head, 17) AS same
        FROM unnest(p_heads) WITH ORDINALITY AS u (head, at)
        CROSS JOIN LATERAL (SELECT k.seq, k.digest FROM agentstore_message k           -- LIMIT: one look-up an id
                            WHERE k.session = p_session AND k.id_hash = substr(u.head, 1, 16) LIMIT 1) m) f
$$;

-- The batch behind `last_seq`. Only where fewer rows went in are the ones that were there looked at. `seqs` is null
-- where all went in: they count up from `first`.
CREATE FUNCTION agentstore_insert(
  p_session bigint, p_last_seq bigint, p_now bigint, p_heads bytea[], p_formats text[], p_payloads bytea[],
  OUT first bigint, OUT seqs bigint[], OUT positions int[], OUT written int, OUT size bigint) LANGUAGE plpgsql AS $$
BEGIN
  first := p_last_seq + 1;
  WITH new AS (
    INSERT INTO agentstore_message (session, seq, created_at, id_hash, digest, format, payload)
    SELECT p_session, p_last_seq + r.at, p_now, substr(r.head, 1, 16), substr(r.head, 17), r.format, r.payload
    FROM unnest(p_heads, p_formats, p_payloads) WITH ORDINALITY AS r (head, format, payload, at)
    ON CONFLICT (session, id_hash) DO NOTHING RETURNING octet_length(payload) AS octets)
  SELECT count(*), coalesce(sum(octets), 0) INTO written, size FROM new;
  IF written < cardinality(p_heads) THEN
    SELECT f.seqs, f.positions INTO seqs, positions FROM agentstore_found(p_session, p_heads) f;
  END IF;
END $$;

-- A session's answers, with that of call number `p_call` in the place of the one 32 calls before: token, first seq (0: they
-- do not count up, and have a row of their own), how many were written, snapshot version.
CREATE FUNCTION agentstore_noted(p_answers bytea, p_call bigint, p_token bytea, p_first bigint, p_written int,
  p_version bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
  SELECT overlay(p_answers PLACING p_token || int8send(p_first) || int4send(p_written) || int8send(p_version)
                 FROM (p_call % 32)::int * 36 + 1) $$;

-- The answer to a call; nulls where it is not known.
CREATE FUNCTION agentstore_remembered(s agentstore_session, p_token bytea,
  OUT first bigint, OUT seqs bigint[], OUT written int, OUT version bigint) LANGUAGE plpgsql AS $$
DECLARE answer bytea;
BEGIN
  FOR place IN 0..octet_length(s.answers) / 36 - 1 LOOP
    answer := substr(s.answers, place * 36 + 1, 36);
    IF substr(answer, 1, 16) = p_token THEN
      first := ('x' || encode(substr(answer, 17, 8), 'hex'))::bit(64)::bigint;
      written := ('x' || encode(substr(answer, 25, 4), 'hex'))::bit(32)::int;
      version := ('x' || encode(substr(answer, 29, 8), 'hex'))::bit(64)::bigint;
      SELECT a.seqs INTO seqs FROM agentstore_answer a
      WHERE first = 0 AND a.session = s.id AND a.slot = place;
      RETURN;
    END IF;
  END LOOP;
END $$;

-- Lock and insert stand here in full: a call of another function costs as much as a row.
CREATE FUNCTION agentstore_append(
  p_hash bytea, p_namespace bytea, p_source bytea, p_session bytea,
  p_token bytea, p_retry boolean, p_expected_last bigint, p_ttl bigint,
  p_heads bytea[], p_formats text[], p_payloads bytea[], p_size bigint,
  p_snapshot_format text, p_snapshot bytea, p_replaceable text[], p_expected_version bigint,
  OUT refused text, OUT positions int[], OUT actual bigint,
  OUT first bigint, OUT seqs bigint[], OUT written int, OUT version bigint)
LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; now_us bigint; size bigint; known boolean;
BEGIN
  SELECT * INTO s FROM agentstore_session WHERE hash = p_hash AND linked FOR NO KEY UPDATE;
  now_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;  -- after the lock: the wait may have been long
  IF s.id IS NULL OR s.expires_at <= now_us THEN
    actual := 0;                        -- what a session that is not there would refuse: so none is begun in vain
    IF p_expected_last <> 0 THEN refused := 'last'; RETURN; END IF;
    IF p_snapshot IS NOT NULL AND p_expected_version <> 0 THEN refused := 'version'; RETURN; END IF;
    s := agentstore_begin(p_hash, p_namespace, p_source, p_session, p_ttl);
    now_us := agentstore_now();
  END IF;
  IF p_retry THEN
    SELECT r.* INTO first, seqs, written, version FROM agentstore_remembered(s, p_token) r;
    IF written IS NOT NULL THEN RETURN; END IF;
  END IF;

  INSERT INTO agentstore_message (session, seq, created_at, id_hash, digest, format, payload)
  SELECT s.id, s.last_seq + r.at, now_us, substr(r.head, 1, 16), substr(r.head, 17), r.format, r.payload
  FROM unnest(p_heads, p_formats, p_payloads) WITH ORDINALITY AS r (head, format, payload, at)
  ON CONFLICT (session, id_hash) DO NOTHING;
  GET DIAGNOSTICS written = ROW_COUNT;
  first := s.last_seq + 1; size := p_size;
  IF written < cardinality(p_heads) THEN               -- only now are the ones that were there looked at
    SELECT f.seqs, f.positions INTO seqs, positions FROM agentstore_found(s.id, p_heads) f;
    SELECT coalesce(sum(octet_length(m.payload)), 0) INTO size
    FROM agentstore_message m WHERE m.session = s.id AND m.seq > s.last_seq;
  END IF;
  known := cardinality(p_heads) > 0 AND written = 0;
  IF positions IS NOT NULL THEN         -- the rules of `plan_append`, in their order
    refused := 'ids';
  ELSIF NOT known AND p_expected_last IS NOT NULL THEN
    SELECT coalesce(max(m.seq), 0) INTO actual
    FROM agentstore_message m WHERE m.session = s.id AND m.seq <= s.last_seq;
    IF actual <> p_expected_last THEN refused := 'last'; END IF;
  END IF;
  IF refused IS NULL AND NOT known AND p_snapshot IS NOT NULL THEN
    IF s.snapshot_format IS NOT NULL AND s.snapshot_format <> ALL (p_replaceable) THEN
      refused := 'format';
    ELSIF s.snapshot_version <> p_expected_version THEN
      refused := 'version'; actual := s.snapshot_version;
    END IF;
  END IF;
  IF refused IS NOT NULL THEN           -- undone by hand: a raised error would fill the server's log
    DELETE FROM agentstore_message WHERE session = s.id AND seq > s.last_seq;
    RETURN;
  END IF;

  version := s.snapshot_version;
  IF p_snapshot IS NOT NULL AND NOT known THEN
    version := version + 1;
    INSERT INTO agentstore_snapshot VALUES (s.id, p_snapshot)
    ON CONFLICT (session) DO UPDATE SET payload = excluded.payload;
  END IF;
  IF seqs IS NOT NULL THEN
    first := 0;
    INSERT INTO agentstore_answer VALUES (s.id, s.calls % 32, seqs)
    ON CONFLICT (session, slot) DO UPDATE SET seqs = excluded.seqs;
  END IF;
  UPDATE agentstore_session SET
    last_seq = s.last_seq + CASE WHEN written > 0 THEN cardinality(p_heads) ELSE 0 END,
    count = s.count + written, bytes = s.bytes + size, calls = s.calls + 1,
    answers = agentstore_noted(s.answers, s.calls, p_token, first, written, version),
    snapshot_version = version,
    snapshot_format = CASE WHEN version > s.snapshot_version THEN p_snapshot_format ELSE s.snapshot_format END,
    updated_at = now_us, minute = now_us / 60000000, expires_at = coalesce(now_us + p_ttl, s.expires_at)
  WHERE id = s.id;
END $$;

-- Turns of different sessions in one step, each written as one alone that has no condition. A row for each that is
-- written. Of the others, which do not live, are locked or hold one of the ids, nothing is written: nobody
-- waits here. Record `n` is of turn `p_owners[n]`, which begins behind record `p_starts[p_owners[n]]`.
CREATE FUNCTION agentstore_append_all(
  p_hashes bytea[], p_tokens bytea[], p_ttls bigint[], p_counts int[], p_sizes bigint[], p_starts int[],
  p_owners int[], p_heads bytea[], p_formats text[], p_payloads bytea[])
RETURNS TABLE (place bigint, last bigint, snapshot_version bigint) LANGUAGE plpgsql AS $$
DECLARE ids bigint[]; lasts bigint[]; ends bigint[]; now_us bigint; given bigint; written bigint;
BEGIN
  SELECT array_agg(coalesce(s.id, 0) ORDER BY h.place), array_agg(coalesce(s.last_seq, 0) ORDER BY h.place),
    array_agg(coalesce(s.expires_at, 9223372036854775807) ORDER BY h.place)
  INTO ids, lasts, ends
  FROM unnest(p_hashes) WITH ORDINALITY AS h (hash, place)
  LEFT JOIN LATERAL (SELECT k.id, k.last_seq, k.expires_at FROM agentstore_session k
                     WHERE k.hash = h.hash AND k.linked LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) s ON true;
  now_us := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  FOR i IN 1..cardinality(ids) LOOP
    IF ends[i] <= now_us THEN ids[i] := 0; END IF;
  END LOOP;

  INSERT INTO agentstore_message (session, seq, created_at, id_hash, digest, format, payload)
  SELECT ids[r.owner], lasts[r.owner] + r.at - p_starts[r.owner], now_us,
    substr(r.head, 1, 16), substr(r.head, 17), r.format, r.payload
  FROM unnest(p_owners, p_heads, p_formats, p_payloads) WITH ORDINALITY AS r (owner, head, format, payload, at)
  WHERE ids[r.owner] > 0 ON CONFLICT (session, id_hash) DO NOTHING;
  GET DIAGNOSTICS written = ROW_COUNT;
  SELECT coalesce(sum(t.count), 0) INTO given FROM unnest(ids, p_counts) AS t (id, count) WHERE t.id > 0;
  IF written < given THEN               -- somebody's id was there: that turn is taken back
    FOR i IN 1..cardinality(ids) LOOP
      IF (SELECT count(*) FROM agentstore_message m WHERE m.session = ids[i] AND m.seq > lasts[i]) < p_counts[i] THEN
        DELETE FROM agentstore_message m WHERE m.session = ids[i] AND m.seq > lasts[i];
        ids[i] := 0;
      END IF;
    END LOOP;
  END IF;

  RETURN QUERY
  UPDATE agentstore_session s SET
    last_seq = s.last_seq + t.count, count = s.count + t.count, bytes = s.bytes + t.size, calls = s.calls + 1,
    answers = agentstore_noted(s.answers, s.calls, t.token, s.last_seq + 1, t.count, s.snapshot_version),
    updated_at = now_us, minute = now_us / 60000000, expires_at = coalesce(now_us + t.ttl, s.expires_at)
  FROM unnest(ids, p_tokens, p_ttls, p_counts, p_sizes) WITH ORDINALITY AS t (id, token, ttl, count, size, place)
  WHERE s.id = t.id
  RETURNING t.place, s.last_seq, s.snapshot_version;
END $$;

CREATE FUNCTION agentstore_changed(p_session bigint, p_count bigint, p_bytes bigint) RETURNS void LANGUAGE sql AS $$
  UPDATE agentstore_session SET count = count + p_count, bytes = bytes + p_bytes,
    updated_at = n.now_us, minute = n.now_us / 60000000
  FROM (SELECT agentstore_now() AS now_us) n WHERE id = p_session $$;

CREATE FUNCTION agentstore_truncate(p_hash bytea, p_after bigint, p_before bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; gone bigint; size bigint;
BEGIN
  s := agentstore_lock(p_hash);
  WITH dropped AS (
    DELETE FROM agentstore_message
    WHERE session = s.id AND seq > coalesce(p_after, 0) AND seq < coalesce(p_before, 9223372036854775807)
    RETURNING octet_length(payload) AS octets)
  SELECT count(*), coalesce(sum(octets), 0) INTO gone, size FROM dropped;
  PERFORM agentstore_changed(s.id, -gone, -size);       -- no row to change where there is no session
  RETURN gone;
END $$;

CREATE FUNCTION agentstore_replace(
  p_hash bytea, p_namespace bytea, p_source bytea, p_session bytea,
  p_after bigint, p_expected_last bigint, p_begin_ttl bigint, p_heads bytea[], p_formats text[], p_payloads bytea[],
  OUT refused text, OUT positions int[], OUT actual bigint,
  OUT first bigint, OUT seqs bigint[], OUT written int, OUT version bigint)
LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; gone bigint; lost bigint; size bigint;
BEGIN
  s := agentstore_lock(p_hash);
  IF s.id IS NULL AND cardinality(p_heads) > 0 AND coalesce(p_expected_last, 0) = 0 THEN
    s := agentstore_begin(p_hash, p_namespace, p_source, p_session, p_begin_ttl);
  END IF;
  SELECT array_agg((u.at - 1)::int ORDER BY u.at) INTO positions      -- the ids that stay: one look-up each, before
  FROM unnest(p_heads) WITH ORDINALITY AS u (head, at)                                      -- anything is dropped
  CROSS JOIN LATERAL (SELECT k.digest FROM agentstore_message k
                      WHERE k.session = s.id AND k.id_hash = substr(u.head, 1, 16) AND k.seq <= p_after LIMIT 1) m
  WHERE m.digest <> substr(u.head, 17);
  SELECT coalesce(max(m.seq), 0) INTO actual FROM agentstore_message m WHERE m.session = s.id;
  IF positions IS NOT NULL THEN refused := 'ids'; RETURN; END IF;
  IF actual <> p_expected_last THEN refused := 'last'; RETURN; END IF;
  first := 1; written := 0; version := coalesce(s.snapshot_version, 0);
  IF s.id IS NULL THEN RETURN; END IF;
  WITH dropped AS (
    DELETE FROM agentstore_message WHERE session = s.id AND seq > p_after RETURNING octet_length(payload) AS octets)
  SELECT count(*), coalesce(sum(octets), 0) INTO gone, lost FROM dropped;
  SELECT i.first, i.seqs, i.written, i.size INTO first, seqs, written, size
  FROM agentstore_insert(s.id, s.last_seq, agentstore_now(), p_heads, p_formats, p_payloads) i;
  UPDATE agentstore_session SET last_seq = s.last_seq + cardinality(p_heads) WHERE id = s.id;
  PERFORM agentstore_changed(s.id, written - gone, size - lost);
END $$;

CREATE FUNCTION agentstore_update(p_hash bytea, p_id bytea, p_digest bytea, p_format text, p_payload bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; m agentstore_message;
BEGIN
  s := agentstore_lock(p_hash);
  SELECT * INTO m FROM agentstore_message WHERE session = s.id AND id_hash = p_id;
  IF NOT FOUND THEN RETURN false; END IF;
  UPDATE agentstore_message SET digest = p_digest, format = p_format, payload = p_payload
  WHERE session = s.id AND seq = m.seq;
  PERFORM agentstore_changed(s.id, 0, octet_length(p_payload) - octet_length(m.payload));
  RETURN true;
END $$;

CREATE FUNCTION agentstore_remove_newest(p_hash bytea, p_seq bigint, p_digest bytea) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; size bigint;
BEGIN
  s := agentstore_lock(p_hash);
  DELETE FROM agentstore_message WHERE session = s.id AND seq = p_seq AND digest = p_digest
    AND seq = (SELECT max(n.seq) FROM agentstore_message n WHERE n.session = s.id)
  RETURNING octet_length(payload) INTO size;
  IF size IS NULL THEN RETURN false; END IF;
  PERFORM agentstore_changed(s.id, -1, -size);
  RETURN true;
END $$;

CREATE FUNCTION agentstore_stage(p_hash bytea, p_namespace bytea, p_source bytea, p_session bytea) RETURNS bigint
LANGUAGE sql AS $$
  INSERT INTO agentstore_session (hash, linked, namespace, source, session, created_at, updated_at, minute, expires_at)
  SELECT p_hash, false, p_namespace, p_source, p_session, n, n, n / 60000000, n + 3600000000 FROM agentstore_now() n
  RETURNING id $$;

CREATE FUNCTION agentstore_stage_page(p_stage bigint, p_seqs bigint[], p_created bigint[],
  p_heads bytea[], p_formats text[], p_payloads bytea[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  UPDATE agentstore_session SET expires_at = agentstore_now() + 3600000000, count = count + cardinality(p_seqs),
    bytes = bytes + (SELECT coalesce(sum(octet_length(p)), 0) FROM unnest(p_payloads) p),
    last_seq = coalesce(p_seqs[cardinality(p_seqs)], last_seq)
  WHERE id = p_stage AND NOT linked AND expires_at > agentstore_now();
  IF NOT FOUND THEN RETURN false; END IF;                -- its lease ran out and purge took it
  INSERT INTO agentstore_message
  SELECT p_stage, r.seq, r.created_at, substr(r.head, 1, 16), substr(r.head, 17), r.format, r.payload
  FROM unnest(p_seqs, p_created, p_heads, p_formats, p_payloads) AS r (seq, created_at, head, format, payload);
  RETURN true;
END $$;

-- True: it is there now. False: the session exists. Null: the lease ran out.
CREATE FUNCTION agentstore_link(p_stage bigint, p_hash bytea, p_begin_ttl bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; now_us bigint;
BEGIN
  s := agentstore_lock(p_hash);
  IF s.id IS NOT NULL THEN RETURN false; END IF;
  now_us := agentstore_now();
  UPDATE agentstore_session SET linked = false WHERE hash = p_hash AND linked AND expires_at <= now_us;
  UPDATE agentstore_session SET linked = true, created_at = now_us, updated_at = now_us, minute = now_us / 60000000,
    expires_at = now_us + p_begin_ttl
  WHERE id = p_stage AND NOT linked AND expires_at > now_us;
  RETURN CASE WHEN FOUND THEN true END;
EXCEPTION WHEN unique_violation THEN RETURN false;       -- another writer began it between the two statements
END $$;

CREATE FUNCTION agentstore_annotate(p_hash bytea, p_namespace bytea, p_source bytea, p_session bytea,
  p_old bytea, p_new bytea, p_begin_ttl bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; current bytea;
BEGIN
  s := agentstore_lock(p_hash);
  IF s.id IS NULL AND p_old IS NULL THEN
    s := agentstore_begin(p_hash, p_namespace, p_source, p_session, p_begin_ttl);
  END IF;
  SELECT payload INTO current FROM agentstore_metadata WHERE session = s.id;
  IF current IS DISTINCT FROM p_old THEN RETURN false; END IF;
  IF p_new IS NULL THEN DELETE FROM agentstore_metadata WHERE session = s.id;
  ELSE INSERT INTO agentstore_metadata VALUES (s.id, p_new) ON CONFLICT (session) DO UPDATE SET payload = p_new;
  END IF;
  PERFORM agentstore_changed(s.id, 0, 0);
  RETURN true;
END $$;

CREATE FUNCTION agentstore_save_snapshot(p_hash bytea, p_namespace bytea, p_source bytea, p_session bytea,
  p_format text, p_payload bytea, p_replaceable text[], p_expected_version bigint, p_begin_ttl bigint,
  OUT refused text, OUT actual bigint, OUT version bigint) LANGUAGE plpgsql AS $$
DECLARE s agentstore_session;
BEGIN
  s := agentstore_lock(p_hash);
  IF s.id IS NULL THEN
    IF p_expected_version <> 0 THEN refused := 'version'; actual := 0; RETURN; END IF;
    s := agentstore_begin(p_hash, p_namespace, p_source, p_session, p_begin_ttl);
  END IF;
  IF s.snapshot_format IS NOT NULL AND s.snapshot_format <> ALL (p_replaceable) THEN
    refused := 'format'; RETURN;
  END IF;
  actual := s.snapshot_version;
  IF actual <> p_expected_version THEN refused := 'version'; RETURN; END IF;
  version := s.snapshot_version + 1;
  INSERT INTO agentstore_snapshot VALUES (s.id, p_payload) ON CONFLICT (session) DO UPDATE SET payload = p_payload;
  UPDATE agentstore_session SET snapshot_version = version, snapshot_format = p_format WHERE id = s.id;
  PERFORM agentstore_changed(s.id, 0, 0);
END $$;

CREATE FUNCTION agentstore_erase(p_session bigint) RETURNS void LANGUAGE sql AS $$
  DELETE FROM agentstore_message WHERE session = p_session;
  DELETE FROM agentstore_answer WHERE session = p_session;
  DELETE FROM agentstore_snapshot WHERE session = p_session;
  DELETE FROM agentstore_metadata WHERE session = p_session;
  DELETE FROM agentstore_session WHERE id = p_session $$;

-- Whether it existed. Its expired forerunners go too; all rows are locked in one order, as those who unlink one lock them.
CREATE FUNCTION agentstore_delete(p_hash bytea) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE s agentstore_session; existed boolean := false; now_us bigint := agentstore_now();
BEGIN
  FOR s IN SELECT * FROM agentstore_session WHERE hash = p_hash AND (linked OR expires_at <= now_us) ORDER BY id FOR UPDATE
  LOOP
    existed := existed OR (s.linked AND (s.expires_at > agentstore_now()) IS NOT FALSE);
    PERFORM agentstore_erase(s.id);
  END LOOP;
  RETURN existed;
END $$;

-- One step of purge: 1 a session is gone, 0 a part of a long one, null nothing left.
CREATE FUNCTION agentstore_purge(p_namespace bytea) RETURNS int LANGUAGE plpgsql AS $$
DECLARE victim bigint; gone bigint;
BEGIN
  SELECT id INTO victim FROM agentstore_session
  WHERE (expires_at <= agentstore_now() OR (p_namespace IS NOT NULL AND NOT linked))       -- a restore under way too
    AND (p_namespace IS NULL OR namespace = p_namespace)
  LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  UPDATE agentstore_session SET linked = false WHERE id = victim AND linked;
  DELETE FROM agentstore_message WHERE session = victim AND seq IN (
    SELECT seq FROM agentstore_message WHERE session = victim ORDER BY seq LIMIT 5000);
  GET DIAGNOSTICS gone = ROW_COUNT;
  IF gone = 5000 THEN RETURN 0; END IF;
  PERFORM agentstore_erase(victim);
  RETURN 1;
END $$;
