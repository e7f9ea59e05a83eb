-- KEYS: 5 staged records, 6 staged ids. ARGV: … 4 count, 5 last seq, 6 bytes, 7 begin ttl or ''
local s = living()
if s then
  redis.call('UNLINK', KEYS[5], KEYS[6])
  return {'ok', '', 0}
end
if redis.call('LLEN', KEYS[5]) ~= tonumber(ARGV[4]) then return {'lost'} end
local admitted, missing = admit(nil, true)
if not admitted then return missing end
if ARGV[4] ~= '0' then
  redis.call('RENAME', KEYS[5], M)
  redis.call('RENAME', KEYS[6], I)
  for _, key in ipairs({M, I}) do redis.pcall('PERSIST', key) end
end
admitted.seq, admitted.bytes = tonumber(ARGV[5]), tonumber(ARGV[6])
if ARGV[7] ~= '' then admitted.expires = now + ARGV[7] end
save(admitted)
return {'ok', admitted.inc, 1}
