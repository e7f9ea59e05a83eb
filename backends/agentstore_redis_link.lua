-- KEYS: 4 staged records, 5 staged ids. ARGV: … 4 count, 5 last seq, 6 bytes, 7 begin ttl or ''
local s = living()
if s then
  redis.call('UNLINK', KEYS[4], KEYS[5])
  return {'ok', '', 0}
end
if redis.call('LLEN', KEYS[4]) ~= tonumber(ARGV[4]) then return {'lost'} end
local admitted, missing = admit(nil, true)
if not admitted then return missing end
if ARGV[4] ~= '0' then
  for at = 4, 5 do redis.call('PERSIST', KEYS[at]) end                     -- first: if refused, nothing changes
  redis.call('RENAME', KEYS[4], M)
  redis.call('RENAME', KEYS[5], I)
end
admitted.seq, admitted.bytes = tonumber(ARGV[5]), tonumber(ARGV[6])
if ARGV[7] ~= '' then admitted.expires = now() + ARGV[7] end
save(admitted)
return {'ok', admitted.inc, 1}
