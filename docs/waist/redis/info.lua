-- One session; or, with an offer, one index entry: its incarnation and minute. ARGV: … 4 '1' from purge
local s, minute = living(), math.floor(now / 60000000)
if ARGV[2] ~= '' and not (s and s.inc == ARGV[2]) then
  if ARGV[4] ~= '1' and minute - ARGV[3] < 10 then return {'young'} end    -- its writer may be between its two steps
  redis.call('SET', KEYS[4], '', 'PX', 900000)                             -- it can never begin now: the entry may go
  if not s then redis.call('UNLINK', S, M, I) end
  return {'gone'}
end
if not s then return {} end
if tonumber(ARGV[3]) > s.minute then                                       -- that writer died there: catch up
  redis.call('HSET', S, 'minute', ARGV[3], 'updated', int(ARGV[3] * 60000000))
end
local first = redis.call('LINDEX', M, 0)
local f = redis.call('HMGET', S, 'key', 'updated', 'meta')
return {'ok', f[1], redis.call('LLEN', M), int(first and seq_of(first) or 0), int((newest())), s.created, f[2],
        s.expires and int(s.expires) or false, int(s.bytes), f[3]}
