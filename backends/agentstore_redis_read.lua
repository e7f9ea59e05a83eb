-- ARGV: … 4 after, 5 before or '', 6 limit or '', 7 newest
if not living() then return {} end
local first, last = 0, redis.call('LLEN', M) - 1
if ARGV[4] ~= '0' then first = position(ARGV[4] + 1) end
if ARGV[5] ~= '' then last = position(tonumber(ARGV[5])) - 1 end
if ARGV[6] ~= '' and ARGV[7] == '1' then first = math.max(first, last - ARGV[6] + 1)
elseif ARGV[6] ~= '' then last = math.min(last, first + ARGV[6] - 1) end
if first > last then return {} end
return redis.call('LRANGE', M, first, last)
