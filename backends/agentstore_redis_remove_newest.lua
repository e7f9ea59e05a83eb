-- ARGV: … 4 seq, 5 digest
local s = living()
local seq, record = newest(s)
local right = s and record and seq == tonumber(ARGV[4]) and string.sub(record, 33, 48) == ARGV[5]
if not right then return {'ok', '', 0} end
local admitted, missing = admit(s)
if not admitted then return missing end
try(s)
redis.call('RPOP', M)
redis.call('HDEL', I, string.sub(record, 17, 32))
s.bytes = s.bytes - size_of(record)
save(s)
return {'ok', s.inc, 1}
