-- ARGV: … 4 after or '', 5 before or ''
local s = living()
if not s then return {'ok', '', 0} end
local first, last = 0, redis.call('LLEN', M) - 1
if ARGV[4] ~= '' then first = position(ARGV[4] + 1) else last = position(tonumber(ARGV[5])) - 1 end
local admitted, missing = admit(s)
if not admitted then return missing end
try(s)
local gone = first <= last and drop(s, first, last) or 0
save(s)
return {'ok', s.inc, gone}
