-- Bytes as text, whatever they are: where they are no text of this database, with escapes.
CREATE FUNCTION agentstore_text(p_bytes bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN convert_from(p_bytes, 'UTF8');
EXCEPTION WHEN data_exception THEN
  RETURN encode(p_bytes, 'escape');
END $$;

-- The payload as JSON that PostgreSQL can look into; null where it is none.
CREATE FUNCTION agentstore_json(p_payload bytea) RETURNS json LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN convert_from(p_payload, 'UTF8')::json;
EXCEPTION WHEN data_exception THEN
  RETURN NULL;
END $$;

-- What an operator reads: a row a message of every session that lives. Text that JSON cannot say, such as one with NUL,
-- is there percent-encoded, as it is stored.
CREATE VIEW agentstore_conversation AS
SELECT agentstore_text(s.namespace) AS namespace, agentstore_text(s.source) AS source,
  agentstore_text(s.session) AS session, m.seq, to_timestamp(m.created_at / 1000000.0) AS created_at,
  coalesce(j.document -> 'role' ->> '$text', j.document ->> 'role') AS role,
  (SELECT string_agg(coalesce(c.content -> 'text' ->> '$text', c.content ->> 'text'), ' ' ORDER BY c.place)
   FROM json_array_elements(CASE json_typeof(j.document -> 'contents') WHEN 'array' THEN j.document -> 'contents' END)
     WITH ORDINALITY AS c (content, place)
   WHERE c.content ->> 'type' = 'text') AS text,
  m.format, m.payload
FROM agentstore_session s JOIN agentstore_message m ON m.session = s.id
CROSS JOIN LATERAL (SELECT CASE WHEN m.format LIKE 'agentstore/%' THEN agentstore_json(m.payload) END AS document) j
WHERE s.linked AND (s.expires_at > agentstore_now()) IS NOT FALSE;
