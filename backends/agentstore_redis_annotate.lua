-- ARGV: … 4 old?, 5 old, 6 new?, 7 new, 8 begin ttl or ''
local s = living()
local current = s and redis.call('HGET', S, 'meta')
if (ARGV[4] == '1' and current ~= ARGV[5]) or (ARGV[4] ~= '1' and current) then return {'ok', '', 0} end
local admitted, missing = admit(s, true)
if not admitted then return missing end
if not s and ARGV[8] ~= '' then admitted.expires = now() + ARGV[8] end
if ARGV[6] == '1' then save(admitted, 'meta', ARGV[7]) else save(admitted) redis.call('HDEL', S, 'meta') end
return {'ok', admitted.inc, 1}
