-- ARGV: … 4 the record
local s = living()
local seq = s and redis.call('HGET', I, string.sub(ARGV[4], 1, 16))
local at = seq and position(tonumber(seq))
local old = at and redis.call('LINDEX', M, at)
if not old or string.sub(old, 17, 32) ~= string.sub(ARGV[4], 1, 16) then return {'ok', '', 0} end
local admitted, missing = admit(s)
if not admitted then return missing end
local record = string.sub(old, 1, 16) .. ARGV[4]                           -- seq and time stay
try(s)
redis.call('LSET', M, at, record)
s.bytes = s.bytes - size_of(old) + size_of(record)
save(s)
return {'ok', s.inc, 1}
